// Asks for an interrupt, as Ctrl-C does, before the n-th event of a trace of Python code. Python
// raises KeyboardInterrupt at the next point where it looks for one: all such points are met as n
// goes up. (A trace function in Python would be interrupted itself.)
extern "C" {
using Tracer = int (*)(void* self, void* frame, int event, void* argument);
void PyEval_SetTrace(Tracer, void*);
int PyObject_SetAttrString(void*, const char*, void*);
void PyErr_SetInterrupt();

static long seen, wanted;
static void* truth;

static int trace(void*, void* frame, int event, void*) {
  const int call = 0;
  if (event == call) PyObject_SetAttrString(frame, "f_trace_opcodes", truth);
  if (++seen == wanted) PyErr_SetInterrupt();
  return 0;
}

// `yes` is Python's True.
void begin(long n, void* yes) {
  seen = 0, wanted = n, truth = yes;
  PyEval_SetTrace(trace, yes);
}

// How many events there were.
long end() {
  PyEval_SetTrace(nullptr, nullptr);
  return seen;
}
}
