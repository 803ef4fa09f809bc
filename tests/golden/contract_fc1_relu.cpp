// fc1_relu: permute_dims; matmul; add; relu
#include "cpu/contract/contract.h"
using namespace graphc;

namespace fc1_relu_space {
using namespace graphc::contract;

struct Shape : Defaults {
    enum { i_m, i_n, i_k, rows_, outer_, columns_, AXES };
    static constexpr int ROWS = i_n, OUTER = outer_, COLUMNS = i_m;
    static constexpr Cut rows[] = {{0, 100, 5}};
    static constexpr Cut columns[] = {{0, 1, 4}, {64, 1, 3}};
    static constexpr int ROW_TILES = 100, COLUMN_STEP = 16;
    static constexpr int LOOPS = 2;
    static constexpr Loop loops[] = {{i_n, 100, 1}, {i_m, 2, 1}};
    static constexpr long TILES = 200, GRAIN = 2, CHUNKS = 28;
    static constexpr int EXTENT = 800, HEAD = 0, MAIN = 800, UNROLL = 2;
    static constexpr int X_LANE = 0, Y_LANE = 1;
    static constexpr long row(int i) { return 800 * i; }
    static constexpr long x_step(int t) { return t; }
    static constexpr long y_step(int t) { return 16 * t; }
    static constexpr long column(int o0, int c0, int o, int c, int t) { return 16 * t + 12800 * c; }
    static long x_at(long z) { return z; }
    static long x_base(const long* at) { return 800 * at[i_n]; }
    static long y_at(long z) { return 16 * z; }
    static long y_base(const long* at) { return 800 * at[i_m]; }
    static constexpr int LAST_LANES = 4;
    static bool last(const long* at, int o, int c) { return at[i_m] + 16 * c + 16 > 100; }
    template <int N, class E>
    static INLINE void finish(const E& epilogue, vec<float> sum, const long* at, int i, int o, int c) {
        epilogue.template operator()<N>(sum, at[i_m] + 16 * c, at[i_n] + i);
    }
};
struct Epilogue {
    static constexpr bool LONG = false;
    float* x2_data;
    float* relu_data;
    template <int N>
    INLINE void operator()(vec<float> sum, long e0, long e1) const {
        const vec<float> x2_ = load<N, 0>(x2_data + e1);
        const vec<float> add_ = sum + x2_;
        const vec<float> relu_ = relu(add_);
        store_lanes<N>(relu_data + 500 * e0 + 16 * e1, relu_);
    }
};
extern "C" void fc1_relu(void* const* arguments, int, int chunk) {
  contract::run<Shape>((const float*)arguments[1], (const float*)arguments[0], chunk, Epilogue{(float*)arguments[2],
      (float*)arguments[3]});
}
}
