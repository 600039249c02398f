// Elementwise functions and sums of one row; every sum has one fixed order.
#pragma once

namespace PW_ISA {

struct Share {
  int64_t first, last;
};

// This thread's part of `count` equal pieces of work.
static inline Share share(const PwPool* pool, int thread, int64_t count) {
  return {count * thread / pool->num_threads, count * (thread + 1) / pool->num_threads};
}

// e^x to about 2 ulp, exactly 1 at 0; x is clamped so that the result is a normal float.
// Range reduction and polynomial of Cephes' expf (Moshier, 1989).
static inline V exp(V x) {
  x = min(max(x, set1(-87.0f)), set1(88.0f));
  V n = round_even(mul(x, set1(1.44269504088896341f)));
  V r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  V p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  return scale_by_power(p, n);
}

// 2^x to about 2 ulp of the nearest power of 2, exactly 1 at 0 and exactly 0 far below.
static inline V exp2(V x) {
  V n = round_even(x);
  V f = sub(x, n);
  V p = set1(1.5403530e-4f);
  p = fma(p, f, set1(1.3333558e-3f));
  p = fma(p, f, set1(9.6181291e-3f));
  p = fma(p, f, set1(5.5504109e-2f));
  p = fma(p, f, set1(2.4022651e-1f));
  p = fma(p, f, set1(6.9314718e-1f));
  p = fma(p, f, set1(1.0f));
  return scale_or_vanish(p, n);
}

// 2^x to a relative error of about 4e-6, exactly 1 at 0 and exactly 0 far below, for 8-bit results.
static inline V exp2_briefly(V x) {
  V whole, f = fraction_of(x, &whole);
  // Least greatest relative error on [0, 1] of a polynomial that is 1 at 0 and 2 at 1.
  V p = set1(1.355575e-2f);
  p = fma(p, f, set1(5.203237e-2f));
  p = fma(p, f, set1(2.4137977e-1f));
  p = fma(p, f, set1(6.9303215e-1f));
  p = fma(p, f, set1(1.0f));
  return scale_or_vanish(p, whole);
}

// The power of 2 for a softmax that is stored as T.
template <class T>
static inline V softmax_power(V x) {
  return sizeof(typename T::Element) < 4 ? exp2_briefly(x) : exp2(x);
}

// x / (1 + e^-x)
static inline V silu(V x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

static inline float inverse_root_mean_square(const float* x, int64_t size, float epsilon) {
  V sum = zero();
  for (int64_t i = 0; i < size; i += PANEL) {
    V part = load(x + i);
    sum = fma(part, part, sum);
  }
  return 1.0f / __builtin_sqrtf(sum_of(sum) / (float)size + epsilon);
}

template <class Out>
static inline void normalise(const float* x, const float* weight, float epsilon, int64_t size,
                             Out* y) {
  V scale = set1(inverse_root_mean_square(x, size, epsilon));
  for (int64_t i = 0; i < size; i += PANEL)
    store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
}

}  // namespace PW_ISA
