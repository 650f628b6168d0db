// Translates types and errors between Python and the engine; holds no logic of its own.
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

#include "../engine/device_launch.h"
#include "../engine/hand_graph.h"
#include "../engine/launch.h"
#include "../engine/settings.h"
#include "../engine/tape.h"
#include "../engine/thread_share.h"
#include "../internals/arguments.h"
#include "../internals/forms.h"
#include "../internals/host_pools.h"
#include "../internals/huge_pages.h"
#include "../internals/plain_copy.h"
#include "../internals/private_device.h"
#include "../internals/streams.h"
#include "../internals/tensors.h"
#include "../kernels/own/row_products.h"
#include "../kernels/own/table.h"
#include "../kernels/table.h"
#include "../python/block.h"
#include "../python/held_elsewhere.h"
#include "../python/held_replay_lock.h"
#include "../python/launches.h"
#include "../python/quick_call.h"
#include "../python/thread_state.h"
#include "../python/usual_call.h"
#include "../python/without_gil.h"
#include "cache_bindings.h"
#include "replay_failure.h"

namespace py = pybind11;

namespace airgraph {
namespace {

RecordedCall recorded_call(const std::string& name, const std::string& overload, const py::tuple& args,
                           const py::dict& kwargs, std::vector<at::Tensor> outs, std::vector<bool> fresh,
                           std::vector<bool> needed, const std::optional<std::string>& out_overload, bool redispatch,
                           bool exact, std::shared_ptr<PackedWeight> packed) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto op = dispatcher.findSchemaOrThrow(name.c_str(), overload.c_str());
  RecordedCall call{op,
                    arguments_of(op.schema(), args, kwargs),
                    std::move(outs),
                    std::move(fresh),
                    std::move(needed),
                    std::nullopt,
                    redispatch,
                    exact,
                    std::move(packed)};
  if (out_overload) {
    call.out_variant = dispatcher.findSchemaOrThrow(name.c_str(), out_overload->c_str());
  }
  return call;
}

template <class AnyLaunch>
void def_inputs(py::class_<AnyLaunch>& launch) {
  launch
      .def(
          "add_placed_input",
          [](AnyLaunch& self, size_t index, const at::Tensor& like, bool is_formed, Strides strides, bool with_offset,
             bool with_storage) {
            self.inputs.add(PlacedInput{index, like.const_data_ptr(), is_formed,
                                        Form::of(like, strides, with_offset, with_storage)});
          },
          py::kw_only(), py::arg("index"), py::arg("like"), py::arg("is_formed"), py::arg("strides"),
          py::arg("with_offset"), py::arg("with_storage"))
      .def(
          "add_copied_input",
          [](AnyLaunch& self, size_t index, at::Tensor buffer, const at::Tensor& like, Strides strides,
             bool with_offset, bool with_storage, size_t block_begin, size_t block_nbytes) {
            self.inputs.add(CopiedInput{index, std::move(buffer), Form::of(like, strides, with_offset, with_storage),
                                        nullptr, block_begin, block_nbytes});
          },
          py::kw_only(), py::arg("index"), py::arg("buffer"), py::arg("like"), py::arg("strides"),
          py::arg("with_offset"), py::arg("with_storage"), py::arg("block_begin"), py::arg("block_nbytes"))
      .def(
          "add_kept_input",
          [](AnyLaunch& self, size_t index, at::Tensor theirs, Strides strides, bool with_offset, bool with_storage) {
            auto form = Form::of(theirs, strides, with_offset, with_storage);
            self.inputs.add(CopiedInput::into_kept(index, std::move(theirs), std::move(form)));
          },
          py::kw_only(), py::arg("index"), py::arg("theirs"), py::arg("strides"), py::arg("with_offset"),
          py::arg("with_storage"))
      .def("captured_address",
           [](const AnyLaunch& self, size_t index) {
             const auto* address = self.inputs.address_of(index);
             if (address == nullptr) {
               throw py::index_error("no argument used in place");
             }
             return reinterpret_cast<uintptr_t>(address);
           })
      .def("add_written_input",
           [](AnyLaunch& self, size_t index, const at::Tensor& at) { self.inputs.add_written(index, at); });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "airgraph's native CPU engine.";
  static py::exception<ReplayFailure> failure(m, "ReplayFailure");
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
  py::register_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) {
        std::rethrow_exception(pending);
      }
    } catch (const ReplayFailure& error) {
      raise_failure(error, failure.ptr());
    }
  });

  py::class_<ThreadState>(m, "ThreadState")
      .def(py::init<>())
      .def("restore", &ThreadState::restore, py::arg("raised") = py::none());
  py::class_<ReplayLockContext>(m, "ReplayLockContext")
      .def("__enter__", &ReplayLockContext::enter)
      .def("__exit__", [](ReplayLockContext& self, const py::object&, const py::object& raised, const py::object&) {
        self.exit(raised);
      });
  py::class_<ReplayLock, std::shared_ptr<ReplayLock>>(m, "ReplayLock")
      .def(py::init<>())
      .def("holding",
           [](std::shared_ptr<ReplayLock> self, std::string what) {
             return std::make_unique<ReplayLockContext>(std::move(self), std::move(what), true);
           })
      .def("if_free", [](std::shared_ptr<ReplayLock> self) {
        return std::make_unique<ReplayLockContext>(std::move(self), "", false);
      });
  m.def(
      "hold_replay_locks_before_fork",
      [](int limit_ms) { hold_replay_locks_before_fork(std::chrono::milliseconds(limit_ms)); },
      py::call_guard<WithoutGil>());
  m.def("resume_replay_locks_in_parent", &resume_replay_locks_in_parent);
  m.def("resume_replay_locks_in_child", &resume_replay_locks_in_child);

  m.def("settings", &settings);
  m.def("first_overlap", [](const py::list& list, const std::vector<size_t>& written) {
    return first_overlap(arguments(list), written);
  });
  m.def("share_storage", &share_storage);
  m.def("is_foreign", &Inputs::is_foreign);

  py::class_<WriteCounter>(m, "WriteCounter").def(py::init<const at::Tensor&>());

  py::class_<HandGraph>(m, "HandGraph")
      .def(py::init<std::shared_ptr<Tape>, std::shared_ptr<ReplayLock>>())
      .def("add_memory", [](HandGraph& self, const at::Tensor& whole) { self.add_memory(whole.storage()); })
      .def("add_written", &HandGraph::add_written)
      .def("replay", [](HandGraph& self) -> py::object {
        const auto problem = run(self);
        return problem ? to_python(*problem) : py::none();
      });

  py::class_<RecordedCall>(m, "RecordedCall")
      .def(py::init(&recorded_call), py::kw_only(), py::arg("name"), py::arg("overload"), py::arg("args"),
           py::arg("kwargs"), py::arg("outs"), py::arg("fresh"), py::arg("needed"), py::arg("out_overload"),
           py::arg("redispatch"), py::arg("exact"), py::arg("packed"));

  py::class_<PackedWeight, std::shared_ptr<PackedWeight>>(m, "PackedWeight")
      .def(py::init<const at::Tensor&, const at::Tensor&>(), py::arg("weight"), py::arg("matrix"))
      .def("refresh", &PackedWeight::refresh)
      .def_property_readonly("nbytes", &PackedWeight::nbytes)
      .def_property_readonly("address", &PackedWeight::address);

  py::class_<Segment>(m, "Segment")
      .def(py::init([](size_t stream, std::vector<size_t> calls, const std::vector<std::pair<size_t, size_t>>& waits,
                       bool on_caller) {
             Segment segment{stream, std::move(calls), {}, on_caller};
             for (const auto& [other, segments] : waits) {
               segment.waits.push_back({other, segments});
             }
             return segment;
           }),
           py::kw_only(), py::arg("stream"), py::arg("calls"), py::arg("waits"), py::arg("on_caller"));

  // `append` uses its call up.
  py::class_<Tape, std::shared_ptr<Tape>>(m, "Tape")
      .def(py::init<>())
      .def("append", [](Tape& self, RecordedCall& call) { return name_of(self.append(std::move(call))); })
      .def("run_beside", &Tape::run_beside, py::arg("segments"), py::arg("threads"), py::arg("is_worth_waking"))
      .def("replay", &Tape::replay, py::call_guard<WithoutGil>())
      .def(
          "replay_on",
          [](Tape& self, int threads) {
            const IntraOpThreads share(threads);
            self.replay();
          },
          py::arg("threads"), py::call_guard<WithoutGil>())
      .def(
          "timeline",
          [](Tape& self, size_t rounds) {
            std::vector<Moment> moments;
            {
              const WithoutGil released;
              moments = self.timeline(rounds);
            }
            py::list found;
            for (const auto& each : moments) {
              found.append(py::make_tuple(each.begin_ns, each.end_ns, each.thread));
            }
            return found;
          },
          py::arg("rounds"))
      .def("__len__", &Tape::size)
      .def_property_readonly("taken", &Tape::taken)
      .def_property_readonly("shared_loops", &Tape::shared_loops)
      .def_property_readonly("is_quick", &Tape::is_quick)
      .def_property_readonly("is_divided_by_aten", &Tape::is_divided_by_aten);

  py::enum_<LiveOutputs>(m, "LiveOutputs")
      .value("preserve", LiveOutputs::preserve)
      .value("warn", LiveOutputs::warn)
      .value("error", LiveOutputs::error)
      .value("overwrite", LiveOutputs::overwrite);

  py::enum_<Strides>(m, "Strides")
      .value("exact", Strides::exact)
      .value("elements", Strides::elements)
      .value("order", Strides::order);

  py::class_<Neighbours, std::shared_ptr<Neighbours>>(m, "Neighbours").def(py::init<>());

  py::class_<Launch> launch(m, "Launch");
  launch
      .def(py::init([](std::shared_ptr<Tape> tape, LiveOutputs policy, std::shared_ptr<Neighbours> neighbours,
                       std::shared_ptr<ReplayLock> replay_lock, std::string name, bool follows) {
             auto made =
                 std::make_unique<Launch>(std::move(tape), policy, std::move(neighbours), std::move(replay_lock));
             made->name = std::move(name);
             made->follows = follows;
             return made;
           }),
           py::kw_only(), py::arg("tape"), py::arg("policy"), py::arg("neighbours"), py::arg("replay_lock"),
           py::arg("name"), py::arg("follows"))
      .def("add_followed_storage",
           [](Launch& self, const at::Tensor& bytes, const std::vector<std::pair<size_t, size_t>>& members) {
             FollowedStorage storage{bytes.storage(), {}};
             for (const auto& [index, offset_bytes] : members) {
               storage.members.push_back({index, offset_bytes});
             }
             self.add_followed(std::move(storage));
           })
      .def("add_packed_input",
           [](Launch& self, size_t index, std::shared_ptr<PackedWeight> packed) {
             self.add_packed({index, std::move(packed)});
           })
      .def("add_output_storage", &Launch::add_output_storage)
      .def(
          "add_output",
          [](Launch& launch, size_t storage, at::ScalarType dtype, std::vector<int64_t> sizes,
             std::vector<int64_t> strides, int64_t offset, bool conj, bool neg) {
            launch.add_output({storage, {dtype, std::move(sizes), std::move(strides), offset, conj, neg}});
          },
          py::kw_only(), py::arg("storage"), py::arg("dtype"), py::arg("sizes"), py::arg("strides"), py::arg("offset"),
          py::arg("conj"), py::arg("neg"))
      .def("held_outputs", &Launch::held_outputs)
      .def(
          "run",
          [](Launch& self, const py::list& list, bool is_locked) { return to_python(run(self, list, is_locked)); },
          py::arg("args"), py::arg("is_locked") = false)
      .def("blank", &Launch::blank)
      .def("replay", &Launch::replay, py::call_guard<WithoutGil>());
  def_inputs(launch);

  py::class_<DeviceNeighbours, std::shared_ptr<DeviceNeighbours>>(m, "DeviceNeighbours").def(py::init<>());

  py::class_<BoundLaunch> device_launch(m, "DeviceLaunch");
  device_launch
      .def(py::init<py::object, std::string, LiveOutputs, std::shared_ptr<DeviceNeighbours>,
                    std::shared_ptr<ReplayLock>, std::string>(),
           py::kw_only(), py::arg("replay"), py::arg("device"), py::arg("policy"), py::arg("neighbours"),
           py::arg("replay_lock"), py::arg("name"))
      .def("add_output", &BoundLaunch::add_output)
      .def("held_outputs", &BoundLaunch::held_outputs)
      .def("close", &BoundLaunch::close)
      .def_static("leave_devices", &DeviceLaunch::leave_devices)
      .def("blank", &BoundLaunch::blank)
      .def_readwrite("replay", &BoundLaunch::replay)
      .def("begin", &BoundLaunch::begin)
      .def("copy_inputs", [](const BoundLaunch& self, const py::list& list) { self.copy_inputs(arguments(list)); })
      .def("moved_out", &BoundLaunch::moved_out)
      .def("meets_a_capture", &BoundLaunch::meets_a_capture)
      .def("captured", &BoundLaunch::captured, py::arg("others"))
      .def(
          "run",
          [](BoundLaunch& self, const py::list& list, bool is_locked) { return to_python(run(self, list, is_locked)); },
          py::arg("args"), py::arg("is_locked") = false);
  def_inputs(device_launch);

  py::class_<UsualCall>(m, "UsualCall", py::custom_type_setup(&call_quickly<UsualCall, &UsualCall::called>))
      .def(py::init<py::object, std::vector<std::pair<Py_ssize_t, py::object>>, py::list, py::object, py::object,
                    py::object, py::object, py::object>(),
           py::kw_only(), py::arg("launch"), py::arg("numbers"), py::arg("tally"), py::arg("with_care"),
           py::arg("is_capturing"), py::arg("settings"), py::arg("captured_settings"), py::arg("finish"));

  py::class_<Block>(m, "Block").def(py::init<>()).def("__enter__", &Block::enter).def("__exit__", &Block::exit);

  bind_cache(m);

  const auto def_host_pool = [&m](const char* name, bool (*action)(c10::DeviceType, PoolId)) {
    m.def(name, [action](const std::string& device, PoolId pool) { return action(c10::Device(device).type(), pool); });
  };
  def_host_pool("hold_host_pool", &hold_host_pool);
  def_host_pool("release_host_pool", &release_host_pool);
  def_host_pool("stop_host_routing", &stop_host_routing);
  m.def("held_elsewhere", &held_elsewhere);
  m.def("move_into_huge_pages", [](const std::vector<at::Tensor>& tensors) {
    std::vector<c10::Storage> storages;
    storages.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      storages.push_back(tensor.storage());
    }
    const auto placed = move_into_huge_pages(storages);
    return py::make_tuple(reinterpret_cast<uintptr_t>(placed.begin), placed.nbytes);
  });
  m.def("allow_plain_copies", &PlainCopy::allow);
  m.def("tells_captures_quickly",
        [](const std::string& device) { return tells_captures_quickly(c10::Device(device)); });
  m.def("unallocated", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          at::ScalarType dtype) { return unallocated(sizes, strides, dtype); });
  m.def("allocate", &allocate);
  m.def("pointwise_form", &pointwise_form);
  m.def("serve_private_device", [](const std::string& target) { serve_private_device(c10::Device(target)); });
  m.def("resize_unallocated", &resize_unallocated);
  m.def("whole", [](const py::object& untyped_storage) {
    return bytes_of(torch::createStorage(untyped_storage.ptr()), c10::DispatchKeySet(c10::DispatchKey::CPU));
  });
  m.def("bytes_at", &bytes_at);
  m.def("point_at", [](const at::Tensor& bytes, uintptr_t address) { point_at(bytes.storage(), address); });
  m.attr("MOVES_MEMORY") = true;
  m.attr("CHOOSES_PRODUCTS") = true;
  m.def("distrust_packed_weights", &distrust_packed_weights);
  m.def(
      "view_at",
      [](const at::Tensor& bytes, at::ScalarType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides,
         int64_t offset, bool conj, bool neg) {
        const TensorView view{dtype, std::move(sizes), std::move(strides), offset, conj, neg};
        TORCH_CHECK(view.nbytes() <= bytes.storage().nbytes(), "a view of ", view.nbytes(),
                    " bytes does not fit a buffer of ", bytes.storage().nbytes());
        return view.of(bytes.storage());
      },
      py::arg("data"), py::kw_only(), py::arg("dtype"), py::arg("sizes"), py::arg("strides"), py::arg("offset"),
      py::arg("conj"), py::arg("neg"));
  m.def("simd_level", &at::get_cpu_capability);
  m.def("kernel_count", &kernel_count);
  m.def("own_level", &own::level_name);
  m.def("use_dots", &own::use_dots, py::arg("wanted"));
  m.def("may_use_dots", &own::may_use_dots);
  m.def("reads_several_places", &own::reads_several_places);
  m.def("read_several_places", &own::read_several_places, py::arg("wanted"));
  m.def("has_kernel", [](const std::string& name, const std::string& overload) {
    return find_kernel(name, overload) != nullptr || find_own_kernel(name, overload) != nullptr;
  });
}

}  // namespace airgraph
