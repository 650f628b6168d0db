// Notices whether Python objects that were read once are still where they were. Compares identities, computes nothing.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "../internals/dict_version.h"

namespace airgraph {

class Watch {
 public:
  // What is added is watched from then on; all of it before the first `changed`.
  void add_item(const pybind11::object& container, const pybind11::object& key, const pybind11::object& value);
  void add_length(const pybind11::object& container, Py_ssize_t length);
  void add_absent(const pybind11::object& dict, const pybind11::object& key);
  // keys: a tuple, in their order.
  void add_keys(const pybind11::object& dict, const pybind11::tuple& keys);
  void add_attribute(const pybind11::object& owner, const pybind11::object& name, const pybind11::object& value);
  // An object's class, and the dict of its attributes.
  void add_type(const pybind11::object& owner, const pybind11::object& type);
  // In the namespace of a class itself.
  void add_class_item(const pybind11::object& owner, const pybind11::object& name, const pybind11::object& value);
  void add_class_absent(const pybind11::object& owner, const pybind11::object& name);
  // is_as_it_was: a function that says whether the class still defines what it did.
  void add_class(const pybind11::object& owner, const pybind11::object& is_as_it_was);
  // By its code and its defaults.
  void add_function(const pybind11::object& function);
  void add_cell(const pybind11::object& cell, const pybind11::object& value);

  // Also true where something is missing. Needs the GIL.
  bool changed();

  // How often what is in a dict was compared, because nothing else could tell that it is unchanged.
  size_t dicts_compared() const { return dicts_compared_; }

  // For Python's garbage collector: what is watched usually leads back to the watch.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  // In a dict a key and its value; else an object and what it should have.
  struct Item {
    pybind11::object key, value;
  };
  struct Entry {
    pybind11::object owner, key, value;
  };
  struct Sized {
    pybind11::object owner;
    Py_ssize_t length;
  };
  // What is watched in one dict. As long as its version is the same, nothing in it has changed.
  struct Dict {
    explicit Dict(const pybind11::object& dict) : owner(dict), version(dict.ptr()) {}

    // Destroyed after its version, which needs it.
    pybind11::object owner;
    DictVersion version;
    std::vector<Item> items;
    std::vector<pybind11::object> absent;
    pybind11::object keys;
    Py_ssize_t length = -1;

    bool changed() const;
  };

  // What is watched in one class, and found through it. As long as its version is the same, neither it nor a base of it
  // has changed.
  struct Class {
    explicit Class(pybind11::object class_) : owner(std::move(class_)) {}

    pybind11::object owner;
    std::vector<Item> attributes, items;
    std::vector<pybind11::object> absent;
    pybind11::object is_as_it_was;

    bool changed() const;
  };

  // What `function.__code__ = ...` and the like replace.
  struct Function {
    explicit Function(pybind11::object function);

    pybind11::object owner, code, defaults, keyword_defaults;
  };

  // All of a call that finds everything unchanged: read one after the other, and nothing else is touched.
  struct DictSeen {
    const uint64_t* version;
    uint64_t compared;
    const Dict* dict;
  };
  struct ClassSeen {
    const unsigned* version;
    unsigned compared;
    const Class* watched;
  };

  struct FunctionSeen {
    const PyFunctionObject* function;
    PyObject *code, *defaults, *keyword_defaults;
  };
  struct TypeSeen {
    PyObject* owner;
    PyTypeObject* type;
    // null: it has none of its own.
    PyObject* dict;
  };

  Dict& dict(const pybind11::object& owner);
  Class& class_of(const pybind11::object& owner);
  // Puts down in a row what a call compares.
  void settle();
  bool dicts_changed();
  bool classes_changed();
  // Of classes in the process whose subclasses say so themselves (`abc`), which no version tells.
  bool were_registered();
  bool functions_changed() const;
  bool types_changed() const;

  // In the order of their addresses: neighbours in memory are looked at one after the other.
  std::map<PyObject*, Dict> dicts_;
  std::map<PyObject*, Class> classes_;
  std::vector<DictSeen> dicts_seen_;
  std::vector<ClassSeen> classes_seen_;
  std::vector<FunctionSeen> functions_seen_;
  std::vector<TypeSeen> types_seen_;
  // Whether every dict's changes are counted together, and how many there were at the last comparison.
  bool all_counted_ = true;
  uint64_t changes_seen_ = 0;
  // `abc.get_cache_token`, where a class may have subclasses registered, and what it gave at the last comparison.
  pybind11::object registrations_, registrations_seen_;
  std::vector<Entry> items_, attributes_;
  std::vector<Sized> lengths_;
  // An object and the tuple of its keys, where these may change without a dict; a cell and what it holds.
  std::vector<Item> keys_, cells_;
  // An object, its class, and the dict of its attributes.
  std::vector<Entry> types_;
  std::vector<Function> functions_;
  size_t dicts_compared_ = 0;
  bool settled_ = false;
  // Nothing is watched any more.
  bool cleared_ = false;
};

}  // namespace airgraph
