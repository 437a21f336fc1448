#include <algorithm>
#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>
#include <heddle/core/tensor/execution.hpp>

namespace heddle {

namespace {

/// The options' places in RuleOptions.
enum Option : std::size_t { decay_rate, clip_threshold, epsilon, min_scale, scale_parameter };

/// The last part of Adafactor (Shazeer & Stern 2018): a direction whose root mean square is at most clip_threshold,
/// with scale_parameter a step in proportion to the parameter's own. Decay is decoupled.
struct AdafactorStep {
  static constexpr std::size_t state_tensors = 0;

  double threshold, least, weight_decay;
  bool scaled;

  explicit AdafactorStep(UpdateCall const& call)
      : threshold(call.options[clip_threshold]),
        least(call.options[min_scale]),
        weight_decay(call.weight_decay),
        scaled(call.options[scale_parameter] != 0) {}

  template <class Real>
  struct Factors {
    Real kept, taken;
    KOKKOS_INLINE_FUNCTION void update(Real& value, Real direction) const { value = kept * value - taken * direction; }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    double const size = scalars[update_scalars::value_size];
    double const scale = scaled ? (size > least ? size : least) : 1;
    double const rate = scale * scalars[update_scalars::learning_rate];
    double const excess = scalars[update_scalars::direction_size] / threshold;
    return {.kept = static_cast<Real>(1 - rate * weight_decay),
            .taken = static_cast<Real>(rate / (excess > 1 ? excess : 1))};
  }
};

/// The rule of matrices: the second moment is the product of a row's and a column's mean.
struct Adafactor {
  using Direction = GradientDirection;
  using Step = AdafactorStep;
};

/// The rule of other parameters.
struct AdafactorUnfactored {
  struct Direction {
    static constexpr std::size_t state_tensors = 1;

    double added;

    explicit Direction(UpdateCall const& call) : added(call.options[epsilon]) {}

    template <class Real>
    struct Factors {
      Real decay, fresh, added, gradient_scale;

      KOKKOS_INLINE_FUNCTION void update(Real& direction, Real gradient, Real& second_moment) const {
        Real const g = gradient * gradient_scale;
        second_moment = decay * second_moment + fresh * (g * g + added);
        direction = g / std::sqrt(second_moment);
      }
    };

    template <class Real>
    KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
      double const decay = scalars[update_scalars::numbers];
      return {.decay = static_cast<Real>(decay),
              .fresh = static_cast<Real>(1 - decay),
              .added = static_cast<Real>(added),
              .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale])};
    }
  };
  using Step = AdafactorStep;
};

/// The decay rate of the second moment in update n, 1 − n^−decay_rate: 0 in the first.
double decay_at(RuleOptions const& options, std::int64_t step) {
  return 1 - std::pow(static_cast<double>(step), -options[decay_rate]);
}

template <class Real>
struct Factored {
  static constexpr std::int64_t block = 64;  ///< columns of a work item

  Real* matrix;
  Real* row_moments;
  Real* column_moments;
  std::int64_t rows, columns;
  double added, decay;

  std::int64_t blocks() const { return (columns + block - 1) / block; }
  KOKKOS_INLINE_FUNCTION void add_to(Real& moment, double mean) const {
    moment = static_cast<Real>(decay * static_cast<double>(moment) + (1 - decay) * (mean + added));
  }
};

/// A work item is a row.
template <class Real>
struct MeanRows {
  Factored<Real> of;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row) const {
    Real const* const numbers = of.matrix + row * of.columns;
    double sum = 0;
    for (std::int64_t column = 0; column < of.columns; ++column) {
      auto const g = static_cast<double>(numbers[column]);
      sum += g * g;
    }
    of.add_to(of.row_moments[row], sum / static_cast<double>(of.columns));
  }
};

/// A work item is a block of columns, after all rows' means.
template <class Real>
struct ScaleColumns {
  Factored<Real> of;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t item) const {
    std::int64_t const begin = item * Factored<Real>::block;
    std::int64_t const left = of.columns - begin;
    std::int64_t const count = left < Factored<Real>::block ? left : Factored<Real>::block;
    double sums[Factored<Real>::block] = {};
    double mean = 0;
    for (std::int64_t row = 0; row < of.rows; ++row) {
      Real const* const numbers = of.matrix + row * of.columns + begin;
      for (std::int64_t i = 0; i < count; ++i) {
        auto const g = static_cast<double>(numbers[i]);
        sums[i] += g * g;
      }
      mean += static_cast<double>(of.row_moments[row]);
    }
    mean /= static_cast<double>(of.rows);
    Real factors[Factored<Real>::block];
    for (std::int64_t i = 0; i < count; ++i) {
      Real& moment = of.column_moments[begin + i];
      of.add_to(moment, sums[i] / static_cast<double>(of.rows));
      factors[i] = static_cast<Real>(1 / std::sqrt(static_cast<double>(moment)));
    }
    for (std::int64_t row = 0; row < of.rows; ++row) {
      auto const factor = static_cast<Real>(std::sqrt(mean / static_cast<double>(of.row_moments[row])));
      Real* const numbers = of.matrix + row * of.columns + begin;
      for (std::int64_t i = 0; i < count; ++i) {
        numbers[i] *= factor * factors[i];
      }
    }
  }
};

/// Updates the means of the squares of a gradient's rows and columns, and divides it by the root of what they say each
/// square is: row mean times column mean by the mean of all.
class FactoredSecondMoment final : public MatrixFunction {
 public:
  explicit FactoredSecondMoment(MatrixProblem const& problem) : problem_(problem) {}

  void apply(Execution& execution, MatrixCall const& call) override {
    kernels::ElementTypes<float, double>::with(problem_.dtype, [&]<class Real>(Real) {
      Factored<Real> const factored{
          call.matrix.data<Real>(), call.state[0].data<Real>(), call.state[1].data<Real>(),           problem_.rows,
          problem_.columns,         problem_.options[epsilon],  decay_at(problem_.options, call.step)};
      kernels::for_each(execution, "heddle::adafactor_rows", problem_.rows, MeanRows<Real>{factored});
      kernels::for_each(execution, "heddle::adafactor_columns", factored.blocks(), ScaleColumns<Real>{factored});
    });
  }

  static Cost cost(MatrixProblem const& problem) {
    double const elements = static_cast<double>(problem.rows) * static_cast<double>(problem.columns);
    return {8 * elements, 4 * elements * static_cast<double>(size_of(problem.dtype))};
  }
  static std::vector<MatrixState> state(MatrixProblem const& problem) {
    return {{"adafactor.row_second_moment", {problem.rows}}, {"adafactor.column_second_moment", {problem.columns}}};
  }

 private:
  MatrixProblem problem_;
};

RuleDefinition definition(std::string const& name) {
  OptionDescription above_zero{.name = "clip_threshold",
                               .type = OptionDescription::Type::number,
                               .meaning = "the largest root mean square of a parameter's direction; default: 1",
                               .above_min = true};
  return {.name = name,
          .options = {{{.name = "decay_rate",
                        .type = OptionDescription::Type::number,
                        .meaning = "c of the second moment's decay rate in update n, 1 - n^-c; default: 0.8",
                        .above_min = true},
                       0.8},
                      {above_zero, 1},
                      {{.name = "epsilon",
                        .type = OptionDescription::Type::number,
                        .meaning = "added to squares of gradients; default: 1e-30",
                        .above_min = true},
                       1e-30},
                      {{.name = "min_scale",
                        .type = OptionDescription::Type::number,
                        .meaning = "the least factor by scale_parameter; default: 1e-3",
                        .above_min = true},
                       1e-3},
                      RuleOption::boolean("scale_parameter", true,
                                          "multiply a parameter's rate by its root mean square; default: true")},
          .numbers = [](RuleOptions const& options,
                        UpdateStep const& step) { return RuleDefinition::Numbers{decay_at(options, step.step)}; },
          .sizes = true};
}

}  // namespace

void add_adafactor_rule(KernelRegistries& registries) {
  RuleDefinition rest = definition("adafactor_unfactored");
  rest.state = {"adafactor.second_moment"};
  add_whole_rule<AdafactorUnfactored>(registries, rest);
  RuleDefinition factored = definition("adafactor");
  factored.scope = RuleDefinition::Scope::matrices;
  factored.matrices = {
      .function = [](KernelSource const& /*kernels*/,
                     MatrixProblem const& problem) { return std::make_shared<FactoredSecondMoment>(problem); },
      .cost = FactoredSecondMoment::cost,
      .scratch_bytes = [](MatrixProblem const& /*problem*/) { return std::int64_t{0}; },
      .state = FactoredSecondMoment::state,
      .rest = rest.name};
  add_whole_rule<Adafactor>(registries, factored);
}

}  // namespace heddle
