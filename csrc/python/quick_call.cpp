#include "quick_call.h"

namespace airgraph {

namespace py = pybind11;

void set_error(const std::exception_ptr& raised) {
  try {
    std::rethrow_exception(raised);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    // Its dispatcher knows what to make of all others.
    try {
      py::cpp_function([&raised] { std::rethrow_exception(raised); })();
    } catch (py::error_already_set& error) {
      error.restore();
    }
  }
}

}  // namespace airgraph
