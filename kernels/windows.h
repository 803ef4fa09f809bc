// Windows of pooling, in one text for the CPU and for a GPU.
//
// Whoever includes this defines GRAPHC_WINDOWS, the qualifiers of a function, GRAPHC_ROLLED, what stands before a loop that is not
// unrolled, and least and most of indices I.
#pragma once

namespace graphc {
// Kernel size, stride, padding, input pixels, output pixels; PAD_COUNTS: an average counts the places of the padding.
template <int KH_, int KW_, int DH_, int DW_, int PH_, int PW_, int H_, int W_, int P_, int Q_,
          bool PAD_COUNTS_ = true>
struct Pooling {
  static constexpr int KH = KH_, KW = KW_, DH = DH_, DW = DW_, PH = PH_, PW = PW_, H = H_,
                       WIDTH = W_, P = P_, Q = Q_;
  static constexpr bool PADDED = PH || PW, PAD_COUNTS = PAD_COUNTS_;
  // Each input pixel is in one window, or in none.
  static constexpr bool TILED = KH == DH && KW == DW && !PADDED;
  // The first output whose window holds input pixel h, and the last plus one.
  template <class I> GRAPHC_WINDOWS static I first_row(I h) {
    return most(h + PH - KH + DH, I(0)) / DH;
  }
  template <class I> GRAPHC_WINDOWS static I end_row(I h) { return least((h + PH) / DH + 1, I(P)); }
  template <class I> GRAPHC_WINDOWS static I first_column(I w) {
    return most(w + PW - KW + DW, I(0)) / DW;
  }
  template <class I> GRAPHC_WINDOWS static I end_column(I w) {
    return least((w + PW) / DW + 1, I(Q));
  }
  // Places that the average of output pixel (p, q) divides by.
  template <class I> GRAPHC_WINDOWS static I count(I p, I q) {
    if (PAD_COUNTS || !PADDED) return I(KH) * KW;
    const I h = p * DH - PH, w = q * DW - PW;
    return (least(h + KH, I(H)) - most(h, I(0))) * (least(w + KW, I(WIDTH)) - most(w, I(0)));
  }
};
// How a value is read: the elements from one lane, row and column to the next.
template <long LANE_, long ROW_, long COLUMN_> struct Reads {
  static constexpr long LANE = LANE_, ROW = ROW_, COLUMN = COLUMN_;
};

// Division of what may be negative takes four instructions more.
GRAPHC_WINDOWS unsigned natural(int i) { return i; }
GRAPHC_WINDOWS unsigned long natural(long i) { return i; }
// Calls f(p, q, place) for the outputs whose windows hold input pixel (h, w), in ascending order, and its place there.
template <class D, class I, class F> GRAPHC_WINDOWS void each_window(I h, I w, const F& f) {
  if constexpr (D::TILED) {
    const I p = natural(h) / D::DH, q = natural(w) / D::DW;
    if ((D::P * D::DH == D::H || p < D::P) && (D::Q * D::DW == D::WIDTH || q < D::Q))
      f(p, q, int((h - p * D::DH) * D::KW + w - q * D::DW));
  } else {
    const I end_p = D::end_row(h), first_q = D::first_column(w), end_q = D::end_column(w);
    GRAPHC_ROLLED for (I p = D::first_row(h); p < end_p; p++)
        GRAPHC_ROLLED for (I q = first_q; q < end_q; q++)
            f(p, q, int((h + D::PH - p * D::DH) * D::KW + w + D::PW - q * D::DW));
  }
}
}  // namespace graphc
