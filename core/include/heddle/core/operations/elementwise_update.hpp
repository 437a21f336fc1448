#pragma once

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/row_lanes.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <string>
#include <utility>

/// The header for authors of update rules, in Heddle and in plug-ins. A rule that updates each element by itself is one
/// class, of which add_elementwise_rule makes and registers all implementations; one of whole parameters has two of
/// them, see add_whole_rule:
///
///     struct Descent {
///       static constexpr std::size_t state_tensors = 1;
///       explicit Descent(UpdateCall const& call);          // reads options and weight_decay
///       /// In the element type, from the step's scalars (update_scalars).
///       template <class Real>
///       struct Factors {
///         Real rate, scale, kept;
///         KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& momentum) const;
///       };
///       template <class Real>
///       KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const;
///     };
namespace heddle {

namespace kernels {

/// The elements of an update; the pointers of `State` are those of a rule's tensors.
template <class Real, std::size_t state_tensors>
struct UpdateView {
  Real* value;
  Real const* gradient;
  Real* state[state_tensors > 0 ? state_tensors : 1] = {};
  double const* scalars;
  std::int64_t size;

  explicit UpdateView(UpdateCall const& call)
      : value(call.value.data<Real>()),
        gradient(call.gradient.data<Real>()),
        scalars(call.scalars.data<double>()),
        size(call.value.size()) {
    for (std::size_t index = 0; index < state_tensors; ++index) {
      state[index] = call.state.at(index).template data<Real>();
    }
  }
};

/// The loop that compilers vectorise: no two of the arrays overlap.
template <class Factors, class Real, class... State>
KOKKOS_INLINE_FUNCTION void update_elements(Factors const& factors, std::int64_t count, Real* KOKKOS_RESTRICT value,
                                            Real const* KOKKOS_RESTRICT gradient, State* KOKKOS_RESTRICT... state) {
  for (std::int64_t i = 0; i < count; ++i) {
    factors.update(value[i], gradient[i], state[i]...);
  }
}

/// Updates a block of elements in each work item: the implementation `kokkos`.
template <class Rule, class Real, class Indices>
struct UpdateBlocks;
template <class Rule, class Real, std::size_t... Index>
struct UpdateBlocks<Rule, Real, std::index_sequence<Index...>> {
  static constexpr std::int64_t block = 4096;

  Rule rule;
  UpdateView<Real, sizeof...(Index)> view;

  std::int64_t items() const { return (view.size + block - 1) / block; }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t item) const {
    auto const factors = rule.template factors<Real>(view.scalars);
    std::int64_t const begin = item * block;
    std::int64_t const count = view.size - begin < block ? view.size - begin : block;
    update_elements(factors, count, view.value + begin, view.gradient + begin, (view.state[Index] + begin)...);
  }
};

/// Updates one group of elements in each work item, so that neighbouring threads read neighbouring elements: the
/// implementation `teams`, for devices.
template <class Rule, class Real, class Indices>
struct UpdateGroups;
template <class Rule, class Real, std::size_t... Index>
struct UpdateGroups<Rule, Real, std::index_sequence<Index...>> {
  Rule rule;
  UpdateView<Real, sizeof...(Index)> view;

  std::int64_t items() const { return group_count(view.size); }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t item) const {
    ColumnGroup const at(item, view.size);
    auto const factors = rule.template factors<Real>(view.scalars);
    auto value = at.template load<Real>(view.value);
    auto const gradient = at.template load<Real>(view.gradient);
    GroupValues<Real> state[sizeof...(Index) + 1] = {at.template load<Real>(view.state[Index])...};
    for (int i = 0; i < group_columns; ++i) {
      factors.update(value[i], gradient[i], state[Index][i]...);
    }
    at.store(value, view.value);
    (at.store(state[Index], view.state[Index]), ...);
  }
};

/// Computes one element in float64 in each work item: the implementation `reference`.
template <class Rule, class Real, class Indices>
struct UpdateInDouble;
template <class Rule, class Real, std::size_t... Index>
struct UpdateInDouble<Rule, Real, std::index_sequence<Index...>> {
  Rule rule;
  UpdateView<Real, sizeof...(Index)> view;

  std::int64_t items() const { return view.size; }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    auto const factors = rule.template factors<double>(view.scalars);
    double value = view.value[i];
    double state[sizeof...(Index) + 1] = {static_cast<double>(view.state[Index][i])...};
    factors.update(value, static_cast<double>(view.gradient[i]), state[Index]...);
    view.value[i] = static_cast<Real>(value);
    ((view.state[Index][i] = static_cast<Real>(state[Index])), ...);
  }
};

/// Runs one of the loops above over the elements of a call.
template <class Rule, template <class, class, class> class Loop>
void update_each(Execution& execution, UpdateCall const& call) {
  using Indices = std::make_index_sequence<Rule::state_tensors>;
  ElementTypes<float, double>::with(call.value.dtype(), [&]<class Real>(Real) {
    Loop<Rule, Real, Indices> const loop{Rule(call), UpdateView<Real, Rule::state_tensors>(call)};
    for_each(execution, "heddle::update", loop.items(), loop);
  });
}

/// An implementation of a rule by one of the loops above.
template <class Rule, template <class, class, class> class Loop>
class ElementwiseUpdate : public Update {
 public:
  explicit ElementwiseUpdate(RuleDefinition rule) : rule_(std::move(rule)) {}

  bool supports(UpdateProblem const& problem) const override {
    return problem.rule == rule_.name && (problem.dtype == DType::float32 || problem.dtype == DType::float64);
  }
  RuleDefinition const& rule() const override { return rule_; }
  void update(Execution& execution, UpdateCall const& call) override { update_each<Rule, Loop>(execution, call); }

 private:
  RuleDefinition rule_;
};

/// An implementation of a rule of whole parameters by one of the loops above.
template <class Rule, template <class, class, class> class Loop>
class WholeUpdate final : public ElementwiseUpdate<typename Rule::Step, Loop> {
 public:
  using ElementwiseUpdate<typename Rule::Step, Loop>::ElementwiseUpdate;

  void direct(Execution& execution, UpdateCall const& call) override {
    update_each<typename Rule::Direction, Loop>(execution, call);
  }
};

/// Registers the implementations of a rule whose class keeps `state_tensors` tensors.
template <class Reference, class Blocks, class Groups>
void add_update_kernels(KernelRegistries& registries, RuleDefinition const& rule, std::size_t state_tensors) {
  if (rule.state.size() != state_tensors) {
    throw ConfigError(
        "the update rule " + rule.name + " names " + std::to_string(rule.state.size()) +
        " tensors in RuleDefinition::state, but its class has state_tensors = " + std::to_string(state_tensors));
  }
  std::string const prefix = implementation_prefix(registries, rule);
  KernelRegistry<Update>& registry = registries.of<Update>();
  registry.add_part(prefix + "reference", 0, std::make_shared<Reference>(rule));
  registry.add_part(prefix + "kokkos", 10, std::make_shared<Blocks>(rule));
  registry.add_part(prefix + "teams", kernel_memory_space() == MemorySpace::device ? 18 : 5,
                    std::make_shared<Groups>(rule));
}

}  // namespace kernels

/// Registers the implementations of a rule: Heddle's own as parts of `reference`, `kokkos` and `teams`, a plug-in's as
/// NAME.reference, NAME.kokkos and NAME.teams. Throws ConfigError where a rule of that name is registered, or where the
/// definition's state is not the class's.
template <class Rule>
void add_elementwise_rule(KernelRegistries& registries, RuleDefinition const& rule) {
  static_assert(Rule::state_tensors <= std::tuple_size_v<RuleState>);
  using namespace kernels;
  add_update_kernels<ElementwiseUpdate<Rule, UpdateInDouble>, ElementwiseUpdate<Rule, UpdateBlocks>,
                     ElementwiseUpdate<Rule, UpdateGroups>>(registries, rule, Rule::state_tensors);
}

/// Registers a rule of whole parameters (RuleDefinition::whole) in the same way. `Rule` has two classes such as the one
/// above, for what is done to each element before and after RuleDefinition::matrices.function and the sizes:
/// `Direction`, whose Factors have update(Real& direction, Real gradient, state...), and `Step`, with
/// update(Real& value, Real direction).
template <class Rule>
void add_whole_rule(KernelRegistries& registries, RuleDefinition const& rule) {
  static_assert(Rule::Direction::state_tensors <= std::tuple_size_v<RuleState> && Rule::Step::state_tensors == 0);
  using namespace kernels;
  add_update_kernels<WholeUpdate<Rule, UpdateInDouble>, WholeUpdate<Rule, UpdateBlocks>,
                     WholeUpdate<Rule, UpdateGroups>>(registries, rule, Rule::Direction::state_tensors);
}

/// The Direction of a rule whose MatrixFunction takes the gradient itself.
struct GradientDirection {
  static constexpr std::size_t state_tensors = 0;
  explicit GradientDirection(UpdateCall const& /*call*/) {}

  template <class Real>
  struct Factors {
    Real gradient_scale;
    KOKKOS_INLINE_FUNCTION void update(Real& direction, Real gradient) const { direction = gradient * gradient_scale; }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    return {.gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale])};
  }
};

}  // namespace heddle
