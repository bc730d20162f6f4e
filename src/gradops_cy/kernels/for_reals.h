/* Includes BODY for each type that sums; f(x) is NAME(f)(x) there, of vectors VEC of LANES elements REAL. */
#define REAL float
#define VEC vec_f32
#define LANES LANES_F32
#define NAME(x) x##_f32
#include BODY
#undef REAL
#undef VEC
#undef LANES
#undef NAME
#define REAL double
#define VEC vec_f64
#define LANES LANES_F64
#define NAME(x) x##_f64
#include BODY
#undef REAL
#undef VEC
#undef LANES
#undef NAME
#undef BODY
