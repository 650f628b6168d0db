#include "member.h"

#include <structmember.h>

namespace airgraph {

void Member::find(PyTypeObject* type) {
  // Gives the class a version, if it had none.
  PyObject* const found = held_by_class(type, name_);
  // Another class's descriptor may stand there, whose place is none in these objects.
  const bool is_member = found != nullptr && Py_IS_TYPE(found, &PyMemberDescr_Type) && has_usual_attributes(type) &&
                         PyType_IsSubtype(type, PyDescr_TYPE(found)) != 0 &&
                         reinterpret_cast<PyMemberDescrObject*>(found)->d_member->type == T_OBJECT_EX;
  type_ = type;
  version_ = class_version(type);
  // Without a version, a later change of the class would not be seen.
  offset_ = is_member && version_ != 0 ? reinterpret_cast<PyMemberDescrObject*>(found)->d_member->offset : 0;
}

}  // namespace airgraph
