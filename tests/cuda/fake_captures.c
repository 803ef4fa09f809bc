// fake_captures.c: which streams of the driver that records (fake_driver.c) are being captured, and
// what is an error meanwhile, as CUDA's driver says it.
//
// A capture begins on one stream. A stream that waits for an event of the capture becomes part of it,
// and must be joined before its end: what it was given must come before the last of the first stream.
// Per stream it is known how much of every stream comes before what it is given next.
#include <cuda.h>
#include <stdio.h>
#include <string.h>

void fake_note(const char* line);

#define STREAMS 128
#define EVENTS 4096
#define PLACE(handle, most) ((unsigned long)(handle) % (most))

typedef struct {
  unsigned capture;  // its number from 1; 0 for none
  unsigned before[STREAMS];
} state;
static state streams[STREAMS], events[EVENTS];
static unsigned captures, broken;  // the last capture's number, and that of one that is invalid
static int active;                 // captures that have not ended

static int begins(unsigned capture) {
  for (int i = 0; i < STREAMS; i++)
    if (streams[i].capture == capture) return 1;
  return 0;
}
static CUresult fails(CUresult error) { return broken = captures, error; }

CUresult capture_begin(CUstream stream) {
  state* s = &streams[PLACE(stream, STREAMS)];
  if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  memset(s, 0, sizeof *s);
  return s->capture = ++captures, active++, CUDA_SUCCESS;
}

// A node that a stream is given.
void capture_node(CUstream stream) {
  const unsigned long place = PLACE(stream, STREAMS);
  if (streams[place].capture) streams[place].before[place]++;
}

void capture_record(CUevent event, CUstream stream) {
  events[PLACE(event, EVENTS)] = streams[PLACE(stream, STREAMS)];
}

CUresult capture_wait(CUstream stream, CUevent event) {
  state *s = &streams[PLACE(stream, STREAMS)], *e = &events[PLACE(event, EVENTS)];
  if (!e->capture) return s->capture ? fails(CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
  if (!begins(e->capture)) return CUDA_ERROR_CAPTURED_EVENT;
  if (!s->capture) memset(s, 0, sizeof *s), s->capture = e->capture;
  if (s->capture != e->capture) return fails(CUDA_ERROR_STREAM_CAPTURE_MERGE);
  for (int i = 0; i < STREAMS; i++)
    if (e->before[i] > s->before[i]) s->before[i] = e->before[i];
  return CUDA_SUCCESS;
}

CUresult capture_end(CUstream stream) {
  const state first = streams[PLACE(stream, STREAMS)];
  if (!first.capture) return CUDA_ERROR_ILLEGAL_STATE;
  CUresult found = broken == first.capture ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  for (int i = 0; i < STREAMS; i++) {
    if (streams[i].capture != first.capture) continue;
    if (streams[i].before[i] > first.before[i]) found = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    streams[i].capture = 0;
  }
  return active--, found;
}

// What waits for the device, allocates or frees while a stream is captured breaks the capture.
CUresult capture_forbids(void) {
  return active ? fails(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

// For tests: another library's capture, which begins and ends on its stream, and its nodes.
void fake_node(unsigned long stream) { capture_node((CUstream)stream); }
int fake_begin_capture(unsigned long stream) { return capture_begin((CUstream)stream); }
int fake_end_capture(unsigned long stream) { return capture_end((CUstream)stream); }

// What a node of an executable graph is given: the second of its arguments is recorded.
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
  char line[256];
  snprintf(line, sizeof line, "set_parameters %lu node %lu %s second %llu\n",
           (unsigned long)executable, (unsigned long)node, (char*)parameters->func,
           *(unsigned long long*)parameters->kernelParams[1]);
  return fake_note(line), CUDA_SUCCESS;
}
