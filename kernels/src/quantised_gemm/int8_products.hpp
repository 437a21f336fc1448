#pragma once

#include <cstdint>

/// The inner parts of the int8 GEMM. Files compiled for newer processors include this header, so it must define nothing
/// that the linker could take from them for other files: plain structs and constants only.
namespace heddle::int8 {

/// Columns of a panel of packed weights, and the panels and rows of a that are multiplied at once.
constexpr std::int64_t panel_columns = 16;
constexpr std::int64_t block_columns = 2 * panel_columns;
constexpr std::int64_t block_rows = 32;
/// Elements along k that a panel holds side by side for each column.
constexpr std::int64_t group = 4;
/// The reduction dimension is padded with zeros to a multiple of this: the row of a matrix register.
constexpr std::int64_t reduction_step = 64;

/// Rows of numbers, float32 or bfloat16.
struct Rows {
  void const* data;
  std::int64_t stride, k;
  bool bfloat16;
};

/// Rows in int8: number ≈ scale * (stored - zero), where zero is 0, or 128 for unsigned numbers.
struct QuantisedRows {
  std::int8_t* data;
  std::int64_t stride;  ///< bytes
  float* scales;
};

struct Product {
  QuantisedRows a;  ///< with room for whole blocks of rows; elements beyond k and rows beyond m may be anything
  std::int64_t m, n;
  std::int64_t k;                ///< padded
  std::int8_t const* weights;    ///< whole blocks of panels [k / group, panel_columns, group], zeros where padded
  float const* scales;           ///< of the columns, for whole blocks
  std::int32_t const* excesses;  ///< of the columns: what an a with zero 128 adds to their sums
  float const* bias;             ///< or null
  void* c;
  std::int64_t c_stride;
  bool c_bfloat16, accumulate;
};

/// The code for a set of instructions. Sums are integers, so that all give the same results, bit for bit.
struct Functions {
  bool unsigned_rows;  ///< multiply's a has zero 128
  /// Quantises rows [begin, end), each by its largest absolute number; one that is not finite makes the scale so.
  void (*quantise)(Rows const& rows, std::int64_t begin, std::int64_t end, bool unsigned_rows, QuantisedRows const& to);
  /// c = or += a · weights + bias for blocks of columns [begin, end).
  void (*multiply)(Product const& product, std::int64_t begin, std::int64_t end);
};

/// For any processor.
extern Functions const portable_functions;
/// AVX2; AVX-512 VNNI; AMX int8, whose use the operating system must have allowed.
extern Functions const avx2_functions;
extern Functions const vnni_functions;
extern Functions const amx_functions;

}  // namespace heddle::int8
