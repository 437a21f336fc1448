#pragma once

#include <heddle/core/base/dtype.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The tolerance of an implementation in this dtype against the float64 oracle: |actual - expected| ≤ tolerance * (1 +
/// |expected|).
constexpr double tolerance(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-11;
    case DType::float32:
      return 2e-5;
    case DType::bfloat16:
      return 2e-2;
    case DType::int32:
      return 0;
  }
  return 0;
}

/// The tolerance of a float64 gradient against central differences, in the same form.
constexpr double difference_tolerance = 1e-7;

/// One check of an implementation or of a layer.
struct CheckResult {
  std::string operation;       ///< "layer" for a layer
  std::string implementation;  ///< or the layer's name
  std::string origin;          ///< "built-in" or the plug-in's path
  std::string problem;         ///< its description
  double output_error = 0;     ///< the largest |actual - expected| / (1 + |expected|)
  double gradient_error = 0;   ///< the largest error of a gradient, in the same form
  double tolerance = 0;        ///< of both
  std::string fault = {};      ///< what is wrong, "" if nothing is
  std::string not_run = {};    ///< the reason why nothing was checked, "" if something was

  bool passed() const { return fault.empty() && not_run.empty(); }
};

/// The first that is wrong; null if none is.
CheckResult const* first_fault(std::vector<CheckResult> const& results);

/// "the implementation 'mine' of operation 'gemm'", "the layer 'mine'": for messages.
std::string subject(CheckResult const& result);

/// "the implementation 'mine' of operation 'gemm' is wrong: 3 x 5, float32: output: …", or "… was not checked: …": for
/// messages about a result that did not pass.
std::string describe(CheckResult const& result);

}  // namespace heddle
