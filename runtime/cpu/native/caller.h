// The Python module around a call, with three functions: a small step takes only some microseconds
// in all.
//
// It is there where the player is built with the headers of Python and NumPy (GRAPHC_CALLER); runtime/cpu/caller.py holds the same
// functions in Python. A kind is the shape and the dtype of an array, (tuple of int, numpy.dtype).
#pragma once
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>

#include <cstdint>

namespace graphc {
class Program;
}
extern "C" void graphc_play(graphc::Program* program, const uint64_t* bases);

namespace graphc::caller {

inline bool has_shape(PyArrayObject* array, PyObject* shape) {
  const int rank = PyArray_NDIM(array);
  if (PyTuple_GET_SIZE(shape) != rank) return false;
  for (int d = 0; d < rank; d++)
    if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d)) != PyArray_DIM(array, d)) return false;
  return true;
}

// exact(values, kinds): whether each value is an array of that very kind, as it lies in memory.
inline PyObject* exact(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  PyObject *values = arguments[0], *kinds = arguments[1];
  const Py_ssize_t count = PyTuple_GET_SIZE(kinds);
  if (!PyTuple_CheckExact(values) || PyTuple_GET_SIZE(values) != count) Py_RETURN_FALSE;
  for (Py_ssize_t n = 0; n < count; n++) {
    PyObject *value = PyTuple_GET_ITEM(values, n), *kind = PyTuple_GET_ITEM(kinds, n);
    if (Py_TYPE(value) != &PyArray_Type) Py_RETURN_FALSE;
    auto* array = (PyArrayObject*)value;
    if ((PyObject*)PyArray_DESCR(array) != PyTuple_GET_ITEM(kind, 1)) Py_RETURN_FALSE;
    if (!PyArray_ISCARRAY_RO(array)) Py_RETURN_FALSE;
    if (!has_shape(array, PyTuple_GET_ITEM(kind, 0))) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

// A fresh array, nothing written into it.
inline PyObject* empty(PyObject* kind) {
  PyObject* shape = PyTuple_GET_ITEM(kind, 0);
  npy_intp extents[NPY_MAXDIMS];
  const auto rank = int(PyTuple_GET_SIZE(shape));
  for (int d = 0; d < rank; d++) extents[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d));
  auto* dtype = (PyArray_Descr*)PyTuple_GET_ITEM(kind, 1);
  Py_INCREF(dtype);
  return PyArray_Empty(rank, extents, dtype, 0);
}

// bind(inputs, kinds, bases): fresh outputs of these kinds; the addresses of the inputs and outputs are at `bases`, an address.
inline PyObject* bind(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  PyObject* inputs = PySequence_Fast(arguments[0], "inputs are a sequence");
  if (inputs == nullptr) return nullptr;
  auto* bases = (uint64_t*)PyLong_AsVoidPtr(arguments[2]);
  for (Py_ssize_t n = 0; n < PySequence_Fast_GET_SIZE(inputs); n++)
    *bases++ = (uint64_t)PyArray_DATA((PyArrayObject*)PySequence_Fast_GET_ITEM(inputs, n));
  Py_DECREF(inputs);
  PyObject* kinds = arguments[1];
  PyObject* outputs = PyList_New(PyTuple_GET_SIZE(kinds));
  for (Py_ssize_t n = 0; outputs != nullptr && n < PyTuple_GET_SIZE(kinds); n++) {
    PyObject* output = empty(PyTuple_GET_ITEM(kinds, n));
    if (output == nullptr) {
      Py_DECREF(outputs);
      return nullptr;
    }
    PyList_SET_ITEM(outputs, n, output);
    *bases++ = (uint64_t)PyArray_DATA((PyArrayObject*)output);
  }
  return outputs;
}

// play(program, bases): graphc_play; other threads of Python go on meanwhile.
inline PyObject* play(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  auto* program = (Program*)PyLong_AsVoidPtr(arguments[0]);
  auto* bases = (const uint64_t*)PyLong_AsVoidPtr(arguments[1]);
  Py_BEGIN_ALLOW_THREADS;
  graphc_play(program, bases);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

inline PyObject* module() {
  static PyMethodDef methods[] = {
      {"exact", (PyCFunction)(void (*)())exact, METH_FASTCALL, nullptr},
      {"bind", (PyCFunction)(void (*)())bind, METH_FASTCALL, nullptr},
      {"play", (PyCFunction)(void (*)())play, METH_FASTCALL, nullptr},
      {},
  };
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "graphc_caller", nullptr, -1, methods};
  import_array();
  return PyModule_Create(&definition);
}

}  // namespace graphc::caller
