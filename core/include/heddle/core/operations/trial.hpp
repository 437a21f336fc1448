#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

// A trial is a small problem of an operation, by which its implementations are checked (checks/check.hpp). It is
// made once for each dtype, with the same numbers in each.

/// Makes the tensors of a trial. Each has guard elements, NaN, before and after it and, where its rows are strided,
/// between its rows, so that writing or reading elements outside is found; so is writing to an input.
class TrialTensors {
 public:
  /// The numbers from which sums() start.
  static constexpr double start = 0.5;

  /// Makes the rows of the next matrix strided, with `guards` guard elements between them.
  TrialTensors& strided(std::int64_t guards) {
    guards_between_ = guards;
    return *this;
  }
  /// Random numbers from [low, high), exact in bfloat16: others for each tensor, the same in each dtype.
  Tensor input(DType dtype, Shape const& shape, double low = -1, double high = 1);
  /// An input with these numbers.
  Tensor given(DType dtype, Shape const& shape, std::vector<double> const& values) {
    return add(dtype, shape, values, true);
  }
  Tensor integers(std::vector<std::int32_t> const& values);
  /// NaN before the call: the call must write every element.
  Tensor output(DType dtype, Shape const& shape) { return updated(dtype, shape, everywhere(shape, NAN)); }
  /// `start` everywhere before the call, which adds to it.
  Tensor sums(DType dtype, Shape const& shape) { return updated(dtype, shape, everywhere(shape, start)); }
  /// These numbers before the call, which changes them.
  Tensor updated(DType dtype, Shape const& shape, std::vector<double> const& values) {
    return add(dtype, shape, values, false);
  }

  Sequences sequences(std::vector<std::int32_t> const& lengths);
  /// Dropout at `rate` for `rows` tokens of several samples; none where the rate is 0.
  Dropout dropout(double rate, std::int64_t rows);

  /// Describes the first write to an element that must not be written to; "" where there is none.
  std::string damage() const;

 private:
  struct Buffer {
    Tensor memory;  ///< [elements, guards included]
    Tensor tensor;  ///< the part that calls see
    std::vector<unsigned char> before;
    bool read_only = false;
  };
  static std::vector<double> everywhere(Shape const& shape, double value) {
    return std::vector<double>(static_cast<std::size_t>(shape.size()), value);
  }
  Tensor add(DType dtype, Shape const& shape, std::vector<double> const& values, bool read_only);

  std::vector<Buffer> buffers_;
  std::uint64_t seed_ = 0;
  std::int64_t guards_between_ = 0;
};

/// The factors by which dropout multiplies a [rows, columns] matrix, row major, by its definition (dropout.hpp); ones
/// where it is off.
std::vector<double> dropout_factors(Dropout const& dropout, std::int64_t rows, std::int64_t columns);

struct TrialOutput {
  std::string name;
  Tensor value;
  /// The gradient of this output that backward is given; empty: backward takes none. Its numbers before the calls
  /// count, as backward may overwrite them.
  Tensor upstream{};
  /// The right values, row major, where the trial knows them by the operation's definition. Empty: the results of
  /// `reference`, or of the implementation itself in float64 where `reference` does not support the problem.
  std::vector<double> expected = {};
};

struct TrialGradient {
  std::string name;
  Tensor variable;     ///< the input whose gradient it is
  Tensor value;        ///< the gradient, in the shape of the variable
  double already = 0;  ///< the number that the gradient is added to: TrialTensors::start for sums()
};

template <class Interface>
struct Trial {
  typename Interface::Problem problem;
  std::function<void(Interface&, Execution&)> forward = {};   ///< null: the trial does not exist for this dtype
  std::function<void(Interface&, Execution&)> backward = {};  ///< after forward; null: no gradients
  std::vector<TrialOutput> outputs = {};
  std::vector<TrialGradient> gradients = {};
};

/// A trial without its interface.
struct AnyTrial {
  using Call = std::function<void(Kernel&, Execution&)>;

  Call forward;
  Call backward;
  std::vector<TrialOutput> outputs;
  std::vector<TrialGradient> gradients;
  std::function<bool(Kernel const&)> supported_by;

  template <class Interface>
  explicit AnyTrial(Trial<Interface> trial)
      : forward(erased(std::move(trial.forward))),
        backward(erased(std::move(trial.backward))),
        outputs(std::move(trial.outputs)),
        gradients(std::move(trial.gradients)),
        supported_by([problem = std::move(trial.problem)](Kernel const& kernel) {
          return static_cast<Interface const&>(kernel).supports(problem);
        }) {}

 private:
  template <class Interface>
  static Call erased(std::function<void(Interface&, Execution&)> call) {
    if (!call) {
      return {};
    }
    return [call = std::move(call)](Kernel& kernel, Execution& execution) {
      call(static_cast<Interface&>(kernel), execution);
    };
  }
};

struct NamedTrial {
  std::string name;  ///< "relu, 11 x 301, dropout 0.3"
  std::function<AnyTrial(TrialTensors& tensors, DType dtype)> make;
};

}  // namespace heddle
