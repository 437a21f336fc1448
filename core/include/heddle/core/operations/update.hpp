#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <heddle/core/config/options.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

class KernelRegistries;
struct KernelSource;

/// The numbers of an update that change with each step.
struct UpdateStep {
  double learning_rate = 0;
  double gradient_scale = 1;      ///< multiplies the gradient first (clipping)
  std::int64_t step = 1;          ///< 1 for the first update that the parameter's state has seen
  std::int64_t warmup_steps = 0;  ///< optimizer.warmup_steps
};

/// An option of an update rule, a key of [optimizer] and [optimizer.group."NAME"]: a number or a boolean.
struct RuleOption {
  OptionDescription description;
  double value = 0;  ///< if it is not given; of a boolean 0 or 1

  static RuleOption boolean(std::string name, bool value, std::string meaning) {
    return {OptionDescription::boolean(std::move(name), std::move(meaning)), static_cast<double>(value)};
  }
  /// At least 0 and below 1, such as a decay rate.
  static RuleOption fraction(std::string name, double value, std::string meaning) {
    RuleOption option{OptionDescription::number(std::move(name), std::move(meaning)), value};
    option.description.max = 1;
    option.description.below_max = true;
    return option;
  }
};

/// The values of a rule's options in the order of RuleDefinition::options; a boolean is 0 or 1.
using RuleOptions = std::array<double, 8>;
/// The tensors that a rule keeps for a parameter, in the order of RuleDefinition::state; the rest are empty.
using RuleState = std::array<Tensor, 4>;

/// A matrix that a rule over matrices updates.
struct MatrixProblem {
  DType dtype = DType::float32;
  std::int64_t rows = 0, columns = 0;
  RuleOptions options{};  ///< the rule's
};

/// A tensor that a rule over matrices keeps for the whole matrix, on the rank that computes its function.
struct MatrixState {
  std::string key;  ///< in a checkpoint, as RuleDefinition::state
  Shape shape;
};

struct MatrixCall {
  Tensor matrix;              ///< [rows, columns], contiguous; replaced
  std::vector<Tensor> state;  ///< of MatrixRule::state, in its order; updated; zero before the first update
  std::int64_t step = 1;      ///< UpdateStep::step
};

/// The function of a whole matrix that is a part of an update by a rule over matrices.
class MatrixFunction {
 public:
  virtual ~MatrixFunction() = default;
  /// For a matrix of the problem that it was made for. A device is waited for.
  virtual void apply(Execution& execution, MatrixCall const& call) = 0;
};

/// The part of the definition of a rule over matrices (Scope::matrices). Its update is three calls: Update::direct
/// makes a direction of each element's gradient, the function is applied to the direction of the whole matrix, and
/// Update::update changes each element by the result. Only the second needs the whole matrix, on one rank.
struct MatrixRule {
  std::function<std::shared_ptr<MatrixFunction>(KernelSource const&, MatrixProblem const&)> function;
  std::function<Cost(MatrixProblem const&)> cost;                   ///< of one call of the function
  std::function<std::int64_t(MatrixProblem const&)> scratch_bytes;  ///< at most what a call takes of Execution::scratch
  std::function<std::vector<MatrixState>(MatrixProblem const&)> state = {};  ///< null: none
  /// The rule of the parameters that are not matrices of hidden layers, where optimizer.rest names none.
  std::string rest = "adamw";
};

/// An update rule before it computes. Whoever registers its implementations defines it.
struct RuleDefinition {
  /// The elements that it may update.
  enum class Scope : std::uint8_t {
    elements,  ///< any elements of any parameters
    matrices   ///< matrices of hidden layers (ParameterSpec::matrix), see MatrixRule
  };
  /// The numbers beside learning rate and gradient scale that a call reads.
  using Numbers = std::array<double, 2>;

  std::string name;  ///< the value of optimizer.name
  /// The keys under which a checkpoint has the tensors that it keeps for a parameter, each of the parameter's shape,
  /// beside its value: "adam.first_moment". Under average_key: the values with which the model is to be used, as with
  /// optimizer.average; such a rule is the only one of a run, and takes the constant schedule.
  std::vector<std::string> state = {};
  std::vector<RuleOption> options = {};
  Scope scope = Scope::elements;
  std::function<Numbers(RuleOptions const&, UpdateStep const&)> numbers = {};  ///< null: none
  MatrixRule matrices = {};                                                    ///< of Scope::matrices
  /// The update needs update_scalars::value_size and direction_size of the whole parameter. It is then the calls of
  /// MatrixRule, with Scope::elements without the function, and one replica updates the parameter whole.
  bool sizes = false;

  /// Whether a direction is made first, and one replica keeps and updates a parameter whole.
  bool whole() const { return scope == Scope::matrices || sizes; }
};

struct UpdateProblem {
  std::string rule = "adam";
  DType dtype = DType::float32;
};
std::string describe(UpdateProblem const& problem);
/// The cost of an update of `elements` elements by a rule that keeps `state_elements` numbers for them.
Cost cost(UpdateProblem const& problem, double elements, double state_elements);

/// One update. The tensors are [n].
struct UpdateCall {
  std::string rule;
  Tensor value;  ///< updated
  Tensor gradient;
  RuleState state{};  ///< updated; zero before its first update
  Tensor scalars;     ///< update_scalars in float64, in kernels' memory
  RuleOptions options{};
  double weight_decay = 0;

  UpdateProblem problem() const { return {rule, value.dtype()}; }
};

/// Columns of UpdateCall::scalars. They lie in kernels' memory, so that a step's launches can be recorded once and
/// repeated in the next step.
namespace update_scalars {

constexpr std::int64_t learning_rate = 0;
constexpr std::int64_t gradient_scale = 1;
constexpr std::int64_t numbers = 2;  ///< the first of the rule's own
/// With RuleDefinition::sizes, in Update::update: the root mean squares of the value before the update and of the
/// direction, over all elements of the parameter, which are those of all ranks.
constexpr std::int64_t value_size = numbers + std::tuple_size_v<RuleDefinition::Numbers>;
constexpr std::int64_t direction_size = value_size + 1;
constexpr std::int64_t count = direction_size + 1;

}  // namespace update_scalars

std::array<double, update_scalars::count> update_scalars_of(RuleDefinition const& rule, RuleOptions const& options,
                                                            UpdateStep const& step);

/// How an optimizer updates parameters. An implementation knows one rule: registering it registers the rule. Weight
/// decay is [optimizer]'s, how it acts is the rule's.
class Update : public Operation<UpdateProblem> {
 public:
  static constexpr char const* operation = "update";
  static std::shared_ptr<Update> observed(ObservedSelection<Update> selection);
  virtual RuleDefinition const& rule() const = 0;
  /// With a rule of whole parameters (RuleDefinition::whole), call.gradient is the direction, of a matrix the result of
  /// the MatrixFunction, and the state is not used.
  virtual void update(Execution& execution, UpdateCall const& call) = 0;
  /// Called first by such a rule: call.value = the direction that gradient and state give; updates the state. With
  /// RuleDefinition::sizes it is a copy of the parameter's value before.
  virtual void direct(Execution& execution, UpdateCall const& call);
};

/// The registered rules, each once, in the order of registration.
std::vector<RuleDefinition> update_rules(KernelRegistries const& registries);
/// The rule of that name. ConfigError names `place`, where the name was given, and the nearest name or all. Where no
/// rule at all is registered, as in plans without kernels, a rule that keeps as much as Adam.
RuleDefinition rule_definition(KernelRegistries const& registries, std::string const& name, std::string const& place);

/// The start of the names of a new rule's implementations: nothing for Heddle's own, "NAME." for a plug-in's. Throws
/// ConfigError where the rule's name is empty or taken, or a key of its state cannot be one in a checkpoint.
std::string implementation_prefix(KernelRegistries const& registries, RuleDefinition const& rule);

/// Whether the settings of a rule may have an option of this name: its own, or one of the value's form.
bool has_option(RuleDefinition const& rule, std::string const& name);
/// Throws as option_values does.
void check_options(RuleDefinition const& rule, Settings const& given);
/// The values of a rule's options. Throws ConfigError, with file, line and key, for an option that it does not have,
/// and for one of a wrong type or out of its range.
RuleOptions option_values(RuleDefinition const& rule, Settings const& given);

/// MatrixRule::state of such a matrix; none of a rule over elements. Throws ConfigError for a key that a checkpoint
/// cannot have.
std::vector<MatrixState> matrix_state(RuleDefinition const& rule, MatrixProblem const& problem);

}  // namespace heddle
