// Translates types and errors between Python and the engine; holds no logic of its own.
#include <ATen/ThreadLocalState.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include "cache_bindings.h"
#include "engine/device_launch.h"
#include "engine/hand_graph.h"
#include "engine/launch.h"
#include "engine/settings.h"
#include "engine/tape.h"
#include "engine/turn.h"
#include "kernels/table.h"

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

// A tensor of full extent without memory: views of it are made as of any other; reading or writing it raises, from
// whatever thread and by whatever code that asks the tensor for its memory.
at::Tensor unallocated(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                       at::ScalarType dtype) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  const auto nbytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes,
                       at::DataPtr(nullptr, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "a tensor of a graph that is being captured is read: it has no values before the graph is replayed");
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// Gives an unallocated tensor's storage memory of its own; views of it follow.
void allocate(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->clear_data_ptr_access_error_msg_();
  storage->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage->nbytes()));
}

// Another size for the memory that an unallocated tensor is to have.
void resize_unallocated(const at::Tensor& tensor, size_t nbytes) {
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(nbytes);
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

// All of a storage as one row of bytes; unlike `set_()` it does not look at the memory.
at::Tensor whole(const py::object& untyped_storage) {
  const auto storage = torch::createStorage(untyped_storage.ptr());
  const auto nbytes = static_cast<int64_t>(storage.nbytes());
  auto tensor = at::detail::make_tensor<at::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                        caffe2::TypeMeta::Make<uint8_t>());
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

// The tensors of an argument list, borrowed: the list keeps them alive, also while the GIL is released. What is a tensor
// is found out here, since for a subclass that is a question to Python.
class Arguments {
 public:
  explicit Arguments(const py::list& list) {
    const auto count = PyList_GET_SIZE(list.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* given = PyList_GET_ITEM(list.ptr(), i);
      tensors_.push_back(THPVariable_Check(given) ? &THPVariable_Unpack(given) : nullptr);
    }
  }

  size_t size() const { return tensors_.size(); }
  bool is_tensor(size_t index) const { return index < tensors_.size() && tensors_[index] != nullptr; }

  const at::Tensor& operator()(size_t index) const {
    TORCH_CHECK_TYPE(is_tensor(index), "argument ", index, " is missing or no tensor");
    return *tensors_[index];
  }

 private:
  c10::SmallVector<const at::Tensor*, 64> tensors_;
};

// The right to run the graphs of a pool, for as long as it lives. Needs the GIL, which it lets go while it waits.
class HeldTurn {
 public:
  HeldTurn(std::shared_ptr<Turn> turn, const std::string& what) : turn_(std::move(turn)) {
    auto answer = turn_->take();
    while (answer == Turn::Answer::busy) {
      {
        const py::gil_scoped_release released;
        answer = turn_->wait(std::chrono::milliseconds(50));
      }
      if (answer == Turn::Answer::busy && PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
      }
    }
    if (answer == Turn::Answer::nested) {
      refuse(what +
             " was called by an operator of a graph that is running, in the same memory pool: a graph cannot run inside "
             "itself or its neighbours. Call the uncompiled function there, or use another pool.");
    }
    if (answer == Turn::Answer::deadlock) {
      refuse(what +
             " would wait for ever: it was called within a replay, for whose pool the thread waits that it would wait "
             "for. Call graphs of two pools from one another in one order only.");
    }
  }
  HeldTurn(const HeldTurn&) = delete;
  HeldTurn& operator=(const HeldTurn&) = delete;
  ~HeldTurn() { turn_->give_back(); }

 private:
  [[noreturn]] static void refuse(const std::string& message) {
    const auto type = py::module_::import("airgraph.errors").attr("ReplayError");
    PyErr_SetObject(type.ptr(), py::str(message).ptr());
    throw py::error_already_set();
  }

  std::shared_ptr<Turn> turn_;
};

// `with turn.having("reset of graph_1"):`. Nothing of Python's runs between the taking and the giving back, so neither
// does a signal handler. Where the block ends by an exception, which may have fallen between the halves of a Python context
// manager, all of the thread's state is as it was before: modes, autograd, autocast.
struct TurnContext {
  std::shared_ptr<Turn> turn;
  std::string what;
  bool waits;
  std::optional<HeldTurn> held;
  std::optional<at::ThreadLocalState> state;

  TurnContext(std::shared_ptr<Turn> of, std::string purpose, bool may_wait)
      : turn(std::move(of)), what(std::move(purpose)), waits(may_wait) {}

  // Whether it has the turn: always, where it waits.
  bool enter() {
    if (!waits && turn->is_taken()) {
      return false;
    }
    held.emplace(turn, what);
    state.emplace();
    return true;
  }

  void exit(bool raised) {
    if (held && raised) {
      at::ThreadLocalState::setThreadLocalState(*state);
    }
    held.reset();
  }
};

// `with` over an object that has `_enter`, `_leave` and `_recover`, so that a block which is left by an exception leaves
// nothing behind. An exception of a signal handler may also keep `_leave` from beginning: what `_recover` does is made up
// for here, where none can fall.
struct Block {
  static py::object enter(const py::object& self) {
    return recovering(self, [&self] { return self.attr("_enter")(); });
  }

  static py::object exit(const py::object& self, const py::args& raised) {
    return recovering(self, [&] { return self.attr("_leave")(*raised); });
  }

 private:
  static constexpr int most_interruptions = 1000;

  template <class Call>
  static py::object recovering(const py::object& self, const Call& call) {
    try {
      return call();
    } catch (const py::error_already_set&) {
      for (int i = 0; i < most_interruptions; ++i) {
        try {
          self.attr("_recover")();
          break;
        } catch (const py::error_already_set&) {
          // Interrupted too: it does what is left to be done.
        }
      }
      throw;
    }
  }
};

const char* kind_name(Problem::Kind kind) {
  switch (kind) {
    case Problem::Kind::moved:
      return "moved";
    case Problem::Kind::mismatched:
      return "mismatched";
    case Problem::Kind::foreign:
      return "foreign";
    case Problem::Kind::overlapping:
      return "overlapping";
  }
  return "unknown";
}

// Of the arguments at `written` the first that shares memory with another, and that one; None if none does.
std::optional<std::pair<size_t, size_t>> first_overlap(const py::list& list, const std::vector<size_t>& written) {
  const Arguments args(list);
  const size_t count = args.size();
  std::vector<Span> spans(count);
  for (size_t i = 0; i < count; ++i) {
    if (args.is_tensor(i) && !Inputs::is_foreign(args(i))) {
      spans[i] = Span::of(args(i));
    }
  }
  for (const size_t target : written) {
    for (size_t other = 0; other < count; ++other) {
      if (other != target && spans.at(target).meets(spans[other]) && overlap(args(target), args(other))) {
        return std::make_pair(target, other);
      }
    }
  }
  return std::nullopt;
}

py::object to_python(const Problem& problem) { return py::make_tuple(kind_name(problem.kind), problem.index); }

template <class AnyLaunch>
void def_inputs(py::class_<AnyLaunch>& launch) {
  launch
      .def("add_placed_input",
           [](AnyLaunch& self, size_t index, const at::Tensor& like, bool is_formed, Strides strides, bool with_offset,
              bool with_storage) {
             self.inputs.add(PlacedInput{index, like.const_data_ptr(), is_formed,
                                         Form::of(like, strides, with_offset, with_storage)});
           })
      .def("add_copied_input",
           [](AnyLaunch& self, size_t index, at::Tensor buffer, const at::Tensor& like, Strides strides, bool with_offset,
              bool with_storage, size_t block_begin, size_t block_nbytes) {
             self.inputs.add(CopiedInput{index, std::move(buffer), Form::of(like, strides, with_offset, with_storage),
                                         nullptr, block_begin, block_nbytes});
           })
      .def("add_kept_input",
           [](AnyLaunch& self, size_t index, at::Tensor theirs, Strides strides, bool with_offset, bool with_storage) {
             auto form = Form::of(theirs, strides, with_offset, with_storage);
             const auto* address = theirs.const_data_ptr();
             const size_t block = theirs.is_non_overlapping_and_dense() ? theirs.nbytes() : 0;
             self.inputs.add(CopiedInput{index, std::move(theirs), std::move(form), address, 0, block});
           })
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

// In the launch's turn, which a caller may have already.
py::object run_in_turn(Launch& launch, const Arguments& args, bool follows) {
  if (settings() != launch.captured_settings) {
    return py::make_tuple("settings", 0);
  }
  if (auto problem = launch.inputs.problem(args)) {
    if (problem->kind == Problem::Kind::moved && follows) {
      problem = launch.follow(args);
      if (!problem) {
        problem = launch.inputs.copied_that_overlaps(args);
      }
    }
    if (problem) {
      return to_python(*problem);
    }
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

py::object run(Launch& launch, const py::list& list, bool has_turn) {
  const Arguments args(list);
  if (has_turn) {
    return run_in_turn(launch, args, launch.follows);
  }
  const HeldTurn held(launch.turn, launch.name);
  return run_in_turn(launch, args, launch.follows);
}

// None, or ("lost" | "settings", index of the memory).
py::object replay_by_hand(HandGraph& graph) {
  const HeldTurn held(graph.turn, "replay of a CPUGraph");
  if (const auto lost = graph.lost()) {
    return py::make_tuple("lost", *lost);
  }
  if (settings() != graph.captured_settings) {
    return py::make_tuple("settings", 0);
  }
  {
    const py::gil_scoped_release released;
    graph.tape->replay();
  }
  return py::none();
}

// A launch with the graph's own `replay`, called as Python calls it.
struct BoundLaunch : DeviceLaunch {
  BoundLaunch(py::object call, const std::string& device, LiveOutputs policy,
              std::shared_ptr<DeviceNeighbours> neighbours, std::shared_ptr<Turn> turn, std::string called)
      : DeviceLaunch(c10::Device(device), policy, std::move(neighbours), std::move(turn)),
        name(std::move(called)),
        replay(std::move(call)) {}
  std::string name;
  py::object replay;
};

py::object run_bound_in_turn(BoundLaunch& launch, const Arguments& args) {
  if (settings() != launch.captured_settings) {
    return py::make_tuple("settings", 0);
  }
  if (launch.lost_outputs()) {
    return py::make_tuple("lost", 0);
  }
  if (const auto problem = launch.inputs.problem(args)) {
    // One that moved may be an output of the last call, which is to be given away before it can lie anywhere else.
    return to_python(*problem);
  }
  launch.prepare();
  if (const auto problem = launch.inputs.problem(args)) {
    return to_python(*problem);
  }
  launch.inputs.bump_versions(args);
  launch.copy_inputs(args);
  launch.replay();
  auto made = launch.outputs();
  launch.settle();
  return py::cast(std::move(made));
}

py::object run_bound(BoundLaunch& launch, const py::list& list, bool has_turn) {
  const Arguments args(list);
  if (has_turn) {
    return run_bound_in_turn(launch, args);
  }
  const HeldTurn held(launch.turn, launch.name);
  return run_bound_in_turn(launch, args);
}

// The error of a failed replay: what a Python operator raised to end the program comes out as itself.
void raise_failure(const ReplayFailure& error, PyObject* type) {
  py::object cause;
  const auto take_cause = [&cause] {
    // Set by now. True if it is no mere failure.
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      return true;
    }
    PyObject *kind = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (trace != nullptr) {
      PyException_SetTraceback(value, trace);
    }
    cause = py::reinterpret_steal<py::object>(value);
    Py_XDECREF(kind);
    Py_XDECREF(trace);
    return false;
  };
  try {
    std::rethrow_if_nested(error);
  } catch (py::error_already_set& raised) {
    raised.restore();
    if (take_cause()) {
      return;
    }
  } catch (python_error& raised) {
    raised.restore();
    if (take_cause()) {
      return;
    }
  } catch (const std::exception&) {
    // Its message is in `error`.
  }
  auto failure = py::reinterpret_borrow<py::object>(type)(error.index, error.what());
  if (cause) {
    PyException_SetCause(failure.ptr(), cause.release().ptr());
  }
  PyErr_SetObject(type, failure.ptr());
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
      raise_failure(error, failure.ptr());
    }
  });

  py::class_<at::ThreadLocalState>(m, "ThreadState").def(py::init<>()).def("restore", [](const at::ThreadLocalState& self) {
    at::ThreadLocalState::setThreadLocalState(self);
  });
  py::class_<TurnContext>(m, "TurnContext")
      .def("__enter__", &TurnContext::enter)
      .def("__exit__", [](TurnContext& self, const py::object& kind, const py::object&, const py::object&) {
        self.exit(!kind.is_none());
      });
  py::class_<Turn, std::shared_ptr<Turn>>(m, "Turn")
      .def(py::init<>())
      .def("having",
           [](std::shared_ptr<Turn> self, std::string what) { return std::make_unique<TurnContext>(std::move(self), std::move(what), true); })
      .def("if_free", [](std::shared_ptr<Turn> self) { return std::make_unique<TurnContext>(std::move(self), "", false); });
  m.def(
      "hold_turns_before_fork", [](int limit_ms) { hold_turns_before_fork(std::chrono::milliseconds(limit_ms)); },
      py::call_guard<py::gil_scoped_release>());
  m.def("resume_turns_in_parent", &resume_turns_in_parent);
  m.def("resume_turns_in_child", &resume_turns_in_child);

  m.def("settings", &settings);
  m.def("first_overlap", &first_overlap);
  m.def("share_storage", [](const at::Tensor& a, const at::Tensor& b) {
    return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
  });
  m.def("is_foreign", &Inputs::is_foreign);

  py::class_<HandGraph>(m, "HandGraph")
      .def(py::init<std::shared_ptr<Tape>, std::shared_ptr<Turn>>())
      .def("add_memory", [](HandGraph& self, const at::Tensor& whole) { self.add_memory(whole.storage()); })
      .def("replay", &replay_by_hand);

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

  py::enum_<Strides>(m, "Strides")
      .value("exact", Strides::exact)
      .value("elements", Strides::elements)
      .value("order", Strides::order);

  py::class_<Neighbours, std::shared_ptr<Neighbours>>(m, "Neighbours").def(py::init<>());

  py::class_<Launch> launch(m, "Launch");
  launch
      .def(py::init([](std::shared_ptr<Tape> tape, LiveOutputs policy, std::shared_ptr<Neighbours> neighbours,
                       std::shared_ptr<Turn> turn, std::string name, bool follows) {
        auto made = std::make_unique<Launch>(std::move(tape), policy, std::move(neighbours), std::move(turn));
        made->name = std::move(name);
        made->follows = follows;
        return made;
      }))
      .def("add_followed_storage",
           [](Launch& self, const at::Tensor& bytes, const std::vector<std::pair<size_t, size_t>>& members) {
             FollowedStorage storage{bytes.storage(), {}};
             for (const auto& [index, offset_bytes] : members) {
               storage.members.push_back({index, offset_bytes});
             }
             self.add_followed(std::move(storage));
           })
      .def("add_output_storage", &Launch::add_output_storage)
      .def("add_output",
           [](Launch& launch, size_t storage, const py::object& dtype, std::vector<int64_t> sizes,
              std::vector<int64_t> strides, int64_t offset, bool conj, bool neg) {
             launch.add_output({storage, torch::python::detail::py_object_to_dtype(dtype), std::move(sizes),
                                std::move(strides), offset, conj, neg});
           })
      .def("held_outputs", &Launch::held_outputs)
      .def("output_nbytes", &Launch::output_nbytes)
      .def("run", &run, py::arg("args"), py::arg("has_turn") = false)
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
  device_launch
      .def(py::init<py::object, std::string, LiveOutputs, std::shared_ptr<DeviceNeighbours>, std::shared_ptr<Turn>,
                    std::string>())
      .def("add_output", &BoundLaunch::add_output)
      .def("held_outputs", &BoundLaunch::held_outputs)
      .def("close", &BoundLaunch::close)
      .def("blank", &BoundLaunch::blank)
      .def("run", &run_bound, py::arg("args"), py::arg("has_turn") = false);
  def_inputs(device_launch);

  py::class_<Block>(m, "Block")
      .def(py::init<>())
      .def("__enter__", &Block::enter)
      .def("__exit__", &Block::exit);

  bind_cache(m);

  m.def("unallocated", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          const py::object& dtype) {
    return unallocated(sizes, strides, torch::python::detail::py_object_to_dtype(dtype));
  });
  m.def("allocate", &allocate);
  m.def("resize_unallocated", &resize_unallocated);
  m.def("whole", &whole);
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
