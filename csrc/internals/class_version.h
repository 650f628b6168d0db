// Tells whether a class was changed, by CPython's own number for its state, and finds what it has under a name.
#pragma once

#include <Python.h>

namespace airgraph {

// Where a class's number is read from, as long as the class lives. Another number after each change of it or of a base;
// 0 where it has none now.
inline const unsigned* place_of_class_version(PyTypeObject* type) { return &type->tp_version_tag; }

inline unsigned class_version(PyTypeObject* type) { return *place_of_class_version(type); }

// Whether attributes of its objects are looked up as those of any object.
inline bool has_usual_attributes(PyTypeObject* type) { return type->tp_getattro == PyObject_GenericGetAttr; }

// What a class or one of its bases has under a name, as it lies there; nullptr where none has. A borrowed reference.
inline PyObject* held_by_class(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }

}  // namespace airgraph
