// Translates types and errors between Python and the engine; holds no logic of its own.
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include "engine/device_launch.h"
#include "engine/launch.h"
#include "engine/tape.h"
#include "kernels/table.h"
#include "watch.h"

namespace py = pybind11;

namespace airgraph {
namespace {

using TensorSpans = std::vector<at::Tensor>;

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::prepared:
      return "prepared";
    case Tier::typed:
      return "typed";
    case Tier::boxed:
      return "boxed";
    case Tier::functional:
      return "functional";
  }
  return "unknown";
}

std::string append(Tape& tape, const std::string& name, const std::string& overload,
                   const py::tuple& args, const py::dict& kwargs, TensorSpans outs,
                   std::vector<bool> fresh, std::vector<bool> needed, const std::optional<std::string>& out_overload,
                   bool redispatch) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto op = dispatcher.findSchemaOrThrow(name.c_str(), overload.c_str());
  // A Python number where the schema wants a tensor becomes a wrapped number, as in eager.
  const torch::jit::ToIValueAllowNumbersAsTensors wrap_numbers(true);
  auto stack = torch::jit::createStackForSchema(
      op.schema(), torch::jit::tuple_slice(args), py::reinterpret_borrow<py::kwargs>(kwargs), std::nullopt);
  RecordedCall call{op, std::move(stack), std::move(outs), std::move(fresh), std::move(needed),
                    std::nullopt, redispatch};
  if (out_overload) {
    call.out_variant = dispatcher.findSchemaOrThrow(name.c_str(), out_overload->c_str());
  }
  return tier_name(tape.append(std::move(call)));
}

// A tensor of null memory but full extent: views of it are made as of any other, reading it is an error.
at::Tensor unallocated(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                       at::ScalarType dtype) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  const auto nbytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes,
                       at::DataPtr(nullptr, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// Gives an unallocated tensor's storage memory of its own; views of it follow.
void allocate(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage->nbytes()));
}

// A one-dimensional uint8 tensor over memory that somebody else keeps alive.
at::Tensor bytes_at(uintptr_t address, int64_t nbytes) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes,
                       // NOLINTNEXTLINE(performance-no-int-to-ptr): an address is what it is
                       at::DataPtr(reinterpret_cast<void*>(address), c10::Device(c10::kCPU)),
                       nullptr, /*resizable=*/false);
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({nbytes});
  return tensor;
}

// Points what `bytes_at` made, and all views of it, at another address.
void point_at(const at::Tensor& bytes, uintptr_t address) {
  bytes.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      at::DataPtr(reinterpret_cast<void*>(address), c10::Device(c10::kCPU)));
}

// A tensor over the storage of `bytes`.
at::Tensor view_at(const at::Tensor& bytes, at::ScalarType dtype, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides, int64_t offset, bool conj, bool neg) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  const auto needed = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize(), offset);
  TORCH_CHECK(needed <= bytes.storage().nbytes(), "a view of ", needed, " bytes does not fit a buffer of ",
              bytes.storage().nbytes());
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(bytes.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  if (conj) {
    tensor._set_conj(true);
  }
  if (neg) {
    tensor._set_neg(true);
  }
  return tensor;
}

// The tensors of an argument list, borrowed: the list keeps them alive, also while the GIL is released.
struct Arguments {
  PyObject* list;
  const at::Tensor& operator()(size_t index) const {
    TORCH_CHECK_TYPE(static_cast<Py_ssize_t>(index) < PyList_GET_SIZE(list), "argument ", index, " is missing");
    PyObject* given = PyList_GET_ITEM(list, static_cast<Py_ssize_t>(index));
    TORCH_CHECK_TYPE(THPVariable_Check(given), "argument ", index, " is no tensor");
    return THPVariable_Unpack(given);
  }
};

// None, or ("moved" | "mismatched", input index).
py::object problem_with(const Inputs& inputs, const Arguments& args) {
  if (const auto index = inputs.moved(args)) {
    return py::make_tuple("moved", *index);
  }
  if (const auto index = inputs.mismatched(args)) {
    return py::make_tuple("mismatched", *index);
  }
  return py::none();
}

template <class AnyLaunch>
void def_inputs(py::class_<AnyLaunch>& launch) {
  launch
      .def("add_fixed_input",
           [](AnyLaunch& self, size_t index, uintptr_t address) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr)
             self.inputs.add(FixedInput{index, reinterpret_cast<const void*>(address)});
           })
      .def("add_copied_input",
           [](AnyLaunch& self, size_t index, at::Tensor buffer, const at::Tensor& like) {
             self.inputs.add(CopiedInput{index, std::move(buffer), like.device()});
           })
      .def("add_kept_input",
           [](AnyLaunch& self, size_t index, at::Tensor theirs) {
             const auto device = theirs.device();
             const auto* address = theirs.const_data_ptr();
             self.inputs.add(CopiedInput{index, std::move(theirs), device, address});
           })
      .def("add_formed_input",
           [](AnyLaunch& self, size_t index, const at::Tensor& like) {
             self.inputs.add(FormedInput{index, like.sizes().vec(), like.strides().vec(), like.scalar_type(), like.device(),
                                         like.is_conj(), like.is_neg()});
           })
      .def("keep_apart",
           [](AnyLaunch& self, uintptr_t address, int64_t nbytes) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr)
             self.inputs.keep_apart(reinterpret_cast<const void*>(address), nbytes);
           })
      .def("add_written_input", [](AnyLaunch& self, size_t index) { self.inputs.add_written(index); });
}

py::object run(Launch& launch, const py::list& list) {
  const Arguments args{list.ptr()};
  if (auto problem = problem_with(launch.inputs, args); !problem.is_none()) {
    return problem;
  }
  launch.inputs.bump_versions(args);
  launch.take_turn();
  std::vector<at::Tensor> made;
  {
    const py::gil_scoped_release released;
    made = launch.run(args);
  }
  return py::cast(std::move(made));
}

// A launch with the graph's own `replay`, called as Python calls it.
struct BoundLaunch : DeviceLaunch {
  BoundLaunch(py::object call, const std::string& device, LiveOutputs policy,
              std::shared_ptr<DeviceNeighbours> neighbours)
      : DeviceLaunch(c10::Device(device), policy, std::move(neighbours)), replay(std::move(call)) {}
  py::object replay;
};

py::object run_bound(BoundLaunch& launch, const py::list& list) {
  const Arguments args{list.ptr()};
  if (launch.lost_outputs()) {
    return py::make_tuple("lost", 0);
  }
  launch.prepare();
  if (auto problem = problem_with(launch.inputs, args); !problem.is_none()) {
    return problem;
  }
  launch.inputs.bump_versions(args);
  launch.copy_inputs(args);
  launch.replay();
  auto made = launch.outputs();
  launch.settle();
  return py::cast(std::move(made));
}

Watch* watch_of(PyObject* self) {
  auto held = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder();
  return held.holder_constructed() ? static_cast<Watch*>(held.value_ptr()) : nullptr;
}

void collect_watches(PyHeapTypeObject* heap_type) {
  auto& type = heap_type->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    const auto* watch = watch_of(self);
    return watch == nullptr ? 0 : watch->traverse(visit, arg);
  };
  type.tp_clear = [](PyObject* self) {
    if (auto* watch = watch_of(self)) {
      watch->clear();
    }
    return 0;
  };
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "airgraph's native CPU engine.";
  static py::exception<ReplayFailure> failure(m, "ReplayFailure");
  py::register_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) {
        std::rethrow_exception(pending);
      }
    } catch (const ReplayFailure& error) {
      PyErr_SetObject(failure.ptr(), py::make_tuple(error.index, error.what()).ptr());
    }
  });

  py::class_<Tape, std::shared_ptr<Tape>>(m, "Tape")
      .def(py::init<>())
      .def("append", &append)
      .def("replay", &Tape::replay, py::call_guard<py::gil_scoped_release>())
      .def("profile", &Tape::profile, py::call_guard<py::gil_scoped_release>())
      .def("__len__", &Tape::size);

  py::enum_<LiveOutputs>(m, "LiveOutputs")
      .value("preserve", LiveOutputs::preserve)
      .value("warn", LiveOutputs::warn)
      .value("error", LiveOutputs::error)
      .value("overwrite", LiveOutputs::overwrite);

  py::class_<Neighbours, std::shared_ptr<Neighbours>>(m, "Neighbours").def(py::init<>());

  py::class_<Launch> launch(m, "Launch");
  launch
      .def(py::init<std::shared_ptr<Tape>, LiveOutputs, std::shared_ptr<Neighbours>>())
      .def("add_output_storage", &Launch::add_output_storage)
      .def("add_output",
           [](Launch& launch, size_t storage, const py::object& dtype, std::vector<int64_t> sizes,
              std::vector<int64_t> strides, int64_t offset, bool conj, bool neg) {
             launch.add_output({storage, torch::python::detail::py_object_to_dtype(dtype), std::move(sizes),
                                std::move(strides), offset, conj, neg});
           })
      .def("held_outputs", &Launch::held_outputs)
      .def("output_nbytes", &Launch::output_nbytes)
      .def("run", &run)
      .def("blank",
           [](Launch& self) {
             self.take_turn();
             return self.blank();
           })
      .def("replay", [](Launch& self) {
        self.take_turn();
        const py::gil_scoped_release released;
        self.replay();
      });
  def_inputs(launch);

  py::class_<DeviceNeighbours, std::shared_ptr<DeviceNeighbours>>(m, "DeviceNeighbours")
      .def(py::init<>())
      .def("give_away_held", &DeviceNeighbours::give_away_held);

  py::class_<BoundLaunch> device_launch(m, "DeviceLaunch");
  device_launch.def(py::init<py::object, std::string, LiveOutputs, std::shared_ptr<DeviceNeighbours>>())
      .def("add_output", &BoundLaunch::add_output)
      .def("held_outputs", &BoundLaunch::held_outputs)
      .def("close", &BoundLaunch::close)
      .def("blank", &BoundLaunch::blank)
      .def("run", &run_bound);
  def_inputs(device_launch);

  py::class_<Watch>(m, "Watch", py::custom_type_setup(&collect_watches))
      .def(py::init<const py::tuple&, const py::tuple&, const py::tuple&, const py::tuple&, const py::tuple&,
                    const py::tuple&, const py::tuple&, const py::tuple&>())
      .def("changed", &Watch::changed);

  m.def("unallocated", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          const py::object& dtype) {
    return unallocated(sizes, strides, torch::python::detail::py_object_to_dtype(dtype));
  });
  m.def("allocate", &allocate);
  m.def("bytes_at", &bytes_at);
  m.def("point_at", &point_at);
  m.attr("MOVES_MEMORY") = true;
  m.def("view_at", [](const at::Tensor& bytes, const py::object& dtype, const std::vector<int64_t>& sizes,
                      const std::vector<int64_t>& strides, int64_t offset, bool conj, bool neg) {
    return view_at(bytes, torch::python::detail::py_object_to_dtype(dtype), sizes, strides, offset, conj, neg);
  });
  m.def("simd_level", &at::get_cpu_capability);
  m.def("kernel_count", &kernel_count);
  m.def("has_kernel", [](const std::string& name, const std::string& overload) {
    return find_kernel(name, overload) != nullptr;
  });
}

}  // namespace airgraph
