// relayout.cuh: conversion between channels-last and row-major values: [outer][channels][pixels] as
// [outer][pixels][width]. Padding after the channels is never read.
//
// A block moves a tile of Across channels by Along pixels through shared memory, so that neighbouring
// threads read and write neighbours. Grid: Relayout::blocks.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

template <bool ToLanes, int Outer, int Channels, int Pixels, int Width, int Across, int Along>
struct Relayout {
  static constexpr int across = (Channels + Across - 1) / Across;
  static constexpr int along = (Pixels + Along - 1) / Along;
  static constexpr int blocks = Outer * across * along;
  static constexpr int pitch = Along % 2 ? Along : Along + 1;  // lies in other banks line by line

  template <class T>
  GRAPHC_INLINE static void run(int block, const T* from, T* to, unsigned char* shared) {
    T* const tile = reinterpret_cast<T*>(shared);
    const int c0 = block / along % across * Across, p0 = block % along * Along;
    const long long outer = block / along / across;
    const long long row = (outer * Channels + c0) * Pixels + p0;
    const long long pixel = (outer * Pixels + p0) * Width + c0;
    for (int i = threadIdx.x; i < Across * Along; i += blockDim.x) {
      const int c = ToLanes ? i / Along : i % Across, p = ToLanes ? i % Along : i / Across;
      if (c0 + c < Channels && p0 + p < Pixels)
        tile[c * pitch + p] = from[ToLanes ? row + c * Pixels + p : pixel + p * Width + c];
    }
    __syncthreads();
    if constexpr (ToLanes && sizeof(T) == 4 && Across % 4 == 0 && Width % 4 == 0) {
      for (int i = threadIdx.x; i < Across / 4 * Along; i += blockDim.x) {
        const int c = i % (Across / 4) * 4, p = i / (Across / 4);
        if (c0 + c >= Channels || p0 + p >= Pixels) continue;
        Run<T, 4> run;
#pragma unroll
        for (int j = 0; j < 4; j++)
          run.at[j] = Channels % 4 == 0 || c0 + c + j < Channels ? tile[(c + j) * pitch + p] : T{};
        *reinterpret_cast<Run<T, 4>*>(to + pixel + p * Width + c) = run;
      }
    } else {
      for (int i = threadIdx.x; i < Across * Along; i += blockDim.x) {
        const int c = ToLanes ? i % Across : i / Along, p = ToLanes ? i / Across : i % Along;
        if (c0 + c < Channels && p0 + p < Pixels)
          to[ToLanes ? pixel + p * Width + c : row + c * Pixels + p] = tile[c * pitch + p];
      }
    }
  }
};

}  // namespace graphc
