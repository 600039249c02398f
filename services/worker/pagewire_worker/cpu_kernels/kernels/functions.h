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

// Polynomial of Cephes' tanhf for small x (Moshier, 1989), else by the power, to about 2 ulp.
static inline V tanh(V x) {
  V size = max(x, sub(zero(), x)), z = mul(x, x);
  V p = set1(-5.70498872745e-3f);
  p = fma(p, z, set1(2.06390887954e-2f));
  p = fma(p, z, set1(-5.37397155531e-2f));
  p = fma(p, z, set1(1.33314422036e-1f));
  p = fma(p, z, set1(-3.33332819422e-1f));
  V small = fma(mul(p, z), x, x);
  V large = sub(set1(1.0f), div(set1(2.0f), add(exp(add(size, size)), set1(1.0f))));
  large = select_greater(x, zero(), large, sub(zero(), large));
  return select_greater(size, set1(0.625f), large, small);
}

// x * (1 + erf(x / sqrt(2))) / 2 to about 2e-7 of |x| (Abramowitz and Stegun, 1964, 7.1.26).
static inline V gelu(V x) {
  V size = mul(max(x, sub(zero(), x)), set1(0.70710678118654752f));
  V t = div(set1(1.0f), fma(size, set1(0.3275911f), set1(1.0f)));
  V p = set1(1.061405429f);
  p = fma(p, t, set1(-1.453152027f));
  p = fma(p, t, set1(1.421413741f));
  p = fma(p, t, set1(-0.284496736f));
  p = fma(p, t, set1(0.254829592f));
  V half = mul(mul(mul(p, t), exp(sub(zero(), mul(size, size)))), set1(0.5f));
  return mul(x, select_greater(x, zero(), sub(set1(1.0f), half), half));
}

// x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
static inline V gelu_tanh(V x) {
  V cube = mul(mul(x, x), mul(x, set1(0.044715f)));
  V inner = mul(add(x, cube), set1(0.79788456080286536f));
  return mul(mul(x, set1(0.5f)), add(tanh(inner), set1(1.0f)));
}

// Apart from the rest, so that the loops of products keep their registers.
static __attribute__((noinline)) void activate_rarely(int activation, const float* x, float* y) {
  store(y, activation == PW_GELU ? gelu(load(x)) : gelu_tanh(load(x)));
}

static inline V activate(const PwActivation& activation, V x) {
  if (__builtin_expect(activation.function == PW_SILU, 1)) return silu(x);
  alignas(64) float memory[PANEL];
  store(memory, x);
  activate_rarely(activation.function, memory, memory);
  return load(memory);
}

// `gate` and `up` of a clamped function; of a NaN and a limit, min and max give the NaN.
static __attribute__((noinline)) void clamp_rarely(const PwActivation& activation, const float* gate,
                                                   const float* up, float* y) {
  V limit = set1(activation.limit), g = min(limit, load(gate));
  V u = max(sub(zero(), limit), min(limit, load(up)));
  V power = exp(mul(g, set1(-activation.slope)));
  store(y, mul(add(u, set1(1.0f)), div(g, add(set1(1.0f), power))));
}

// The input of the last matrix of an MLP with a gate.
static inline V gated(const PwActivation& activation, V gate, V up) {
  if (__builtin_expect(activation.function != PW_CLAMPED_SWIGLU, 1))
    return mul(activate(activation, gate), up);
  alignas(64) float gates[PANEL], ups[PANEL];
  store(gates, gate);
  store(ups, up);
  clamp_rarely(activation, gates, ups, gates);
  return load(gates);
}

static inline float inverse_root_mean_square(const float* x, int64_t size, float epsilon) {
  V sum = zero();
  for (int64_t i = 0; i < size; i += PANEL) {
    V part = load(x + i);
    sum = fma(part, part, sum);
  }
  return 1.0f / __builtin_sqrtf(sum_of(sum) / (float)size + epsilon);
}

// (x - mean) / deviation of `norm.size` values, times weight, plus bias.
template <class Out>
static inline void normalise_centered(const float* x, const PwNorm& norm, Out* y) {
  V sum = zero(), squares = zero();
  for (int64_t i = 0; i < norm.size; i += PANEL) sum = add(sum, load(x + i));
  V mean = set1(sum_of(sum) / (float)norm.size);
  for (int64_t i = 0; i < norm.size; i += PANEL) {
    V part = sub(load(x + i), mean);
    squares = fma(part, part, squares);
  }
  V scale = set1(1.0f / __builtin_sqrtf(sum_of(squares) / (float)norm.size + norm.epsilon));
  for (int64_t i = 0; i < norm.size; i += PANEL) {
    V unit = mul(sub(load(x + i), mean), scale);
    V bias = norm.bias == nullptr ? zero() : load(norm.bias + i);
    store(y + i, fma(unit, load(norm.weight + i), bias));
  }
}

// Normalise `norm.size` values; y may be x.
template <class Out>
static inline void normalise(const float* x, const PwNorm& norm, Out* y) {
  if (norm.is_centered) return normalise_centered(x, norm, y);
  V scale = set1(inverse_root_mean_square(x, norm.size, norm.epsilon));
  for (int64_t i = 0; i < norm.size; i += PANEL)
    store(y + i, mul(mul(load(x + i), scale), load(norm.weight + i)));
}

}  // namespace PW_ISA
