#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/config/update_rule.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/core/parameters/choice_counts.hpp>
#include <heddle/core/parameters/placement.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// A parameter's initial values, which depend only on (seed, initializer key, global index).
struct Initializer {
  enum class Kind : std::uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  ///< standard deviation (normal) or bound (uniform)

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::ones, 0}; }
  static Initializer normal(double deviation) { return {Kind::normal, deviation}; }
  /// Glorot & Bengio 2010.
  static Initializer xavier_uniform(std::int64_t fan_in, std::int64_t fan_out);
};

/// A layer's declaration of a parameter: all that io and dist need to know of it.
struct ParameterSpec {
  std::string name;
  Placement placement;
  Initializer initializer;
  /// The name of the random numbers that its initial values use, and the index of its first element among them. Empty:
  /// its own name. Parts of one matrix start with that matrix's values.
  std::string initializer_key = {};
  std::int64_t initializer_offset = 0;
  bool rounded = false;  ///< its value is kept in bfloat16; no rule may train it
  /// Whether it is a linear map of hidden activations, [outputs, inputs]: a rule over matrices may update it.
  bool matrix = false;
  /// Whether its uses round it to the activations' dtype: it may be gathered in that (see DividedSection).
  bool used_rounded = false;
  /// Whether its first axis is a mixture's experts, each of which is used by itself: replicas may divide them.
  bool of_experts = false;
  /// No rule updates it, and it has no gradient: a step changes it by ChoiceCounts, if its group is not frozen.
  bool balances = false;

  std::string const& key() const { return initializer_key.empty() ? name : initializer_key; }
};

struct Parameter {
  ParameterSpec spec;
  Slice slice = {};                     ///< this rank's
  Shape local_shape = {};               ///< of the slice
  IndexRange place = {};                ///< in the set's buffers, with the padding that follows its elements
  bool follows = false;                 ///< it begins where the elements of the parameter declared before it end
  UpdateRule rule = {};                 ///< by its group; see assign_rules
  bool still_frozen = false;            ///< the update that unfreezes it is still to come; see unfreeze
  std::vector<std::string> state = {};  ///< keys of the tensors that its rule keeps for it; none if it is frozen
  /// The shapes of those of `state` that one rank keeps for the whole matrix (MatrixRule::state).
  std::map<std::string, Shape> whole_state = {};
  double matrix_cost = 0;  ///< operations of a rule over matrices on the whole matrix; otherwise 0
  bool shared = false;     ///< its value is another set's: see ParameterSet::share_values
  bool gathered = false;   ///< the replicas divide its value, which is here only while it is used: see ParameterUnit
  std::int64_t state_begin = 0;  ///< the run's updates before the first one that its state has seen
  std::uint64_t id = 0;          ///< unique in the process, for kernels that keep packed copies
  std::uint64_t version = 0;     ///< incremented by code that changes `value`
  Tensor value = {};             ///< master copy, [local_shape]; the only one, in bfloat16 too
  Tensor gradient = {};  ///< [local_shape], added to by backward passes; empty: it is frozen, and none is computed

  Placement const& placement() const { return spec.placement; }
  Shape const& global_shape() const { return placement().global_shape; }
  /// The first index of an axis that this rank holds.
  std::int64_t global_offset(int axis) const { return slice.ranges()[static_cast<std::size_t>(axis)].begin; }
  /// Whether its rule is one of whole parameters: RuleDefinition::whole.
  bool updated_whole() const { return placement().owner == Placement::Owner::single; }
  /// Whether the next update leaves it as it is.
  bool frozen() const { return rule.frozen || still_frozen; }
  /// The dtype of its value beside activations of `dtype`.
  DType value_dtype(DType dtype) const { return spec.rounded ? DType::bfloat16 : parameter_dtype(dtype); }
  /// The key of packed copies; none are kept of a value in bfloat16 or one that is gathered, which is to take little
  /// memory.
  WeightVersion weight_version() const {
    return spec.rounded || gathered ? WeightVersion{} : WeightVersion{id, version};
  }
};

/// Parameters that are adjacent in the buffers without padding between them, so that one product computes with all:
/// the rows of q, k and v are the rows of one matrix.
struct ParameterBlock {
  std::vector<Parameter*> members;
  Tensor value;     ///< [elements of all members], in their order
  Tensor gradient;  ///< the gradients, [elements of all members], in the same order; empty if all members are frozen

  std::int64_t size() const;
  /// The counterpart of Parameter::weight_version for the block: it is larger after any member's value has changed.
  WeightVersion weight_version() const;
};

/// Consecutive places of a set's buffers whose values neighbours among the replicas divide: each holds an equal part,
/// in their order. Other runs of as many replicas hold copies of the parts.
struct DividedSection {
  IndexRange range;
  IndexRange own;         ///< this rank's part
  int parts = 1;          ///< ranks that divide it
  bool in_parts = false;  ///< each rank uses its own part, as experts are used; otherwise all is gathered for a use
  bool rounded = false;
  bool used_rounded = false;  ///< ParameterSpec::used_rounded, of all of them
  bool trained = false;
  /// Whether the gradient is divided, too. It is whole where a pass uses the parameters several times: the sum of the
  /// uses comes first, as on one rank.
  bool divides_gradient = false;
  Tensor values{};  ///< [range], while they are gathered, in bfloat16 where used_rounded and the activations are
  /// The gradient of one micro-batch, while a pass computes it; only with divides_gradient: [range]. For a section that
  /// is used in parts [parts, own], the gradients from each rank's rows; empty where this rank's part adds them up.
  Tensor gradient{};
};

/// Parameters that are used together: a sublayer's, or a table. Where a set divides its values, the matrices among them
/// that no other unit has get sections of the buffers of their own: one of those that are trained, of the frozen ones,
/// and of rounded ones.
struct ParameterUnit {
  std::vector<Parameter*> members;
  std::vector<ParameterBlock*> blocks;      ///< of the members
  std::vector<DividedSection*> sections{};  ///< none: all of it stays whole
};

/// A model's parameters, with their values and gradients each in one contiguous buffer. Layers declare theirs in their
/// constructors and keep the reference; `allocate` then makes the buffers. Every rank of a stage has its parameters at
/// the same offsets. Parameters that are frozen for good when the set is arranged lie after all others and have no
/// gradient; a block is frozen if all of its members are. After these come the ones whose values are rounded, in a
/// buffer of their own. The buffer of gradients can be divided by the replicas (data × context) in whole cache lines.
/// So can the part of a parameter that several stages hold or that its rule updates whole, which is alone between its
/// neighbours: a buffer cut into that many parts is cut in the same way on all stages.
///
/// With `min_elements` the replicas, or runs of them, divide the values of each unit whose matrices have at least that
/// many elements in one part of the buffers. Places stay those of the whole buffers; memory is only there for what this
/// rank holds, so that a Parameter's `value` is empty but for the time that the unit is gathered (see bind_unit).
///
/// With `expert_ranks` above 1, runs of that many replicas divide the experts of mixtures (ParameterSpec::of_experts),
/// whose number they divide: `value` and `gradient` are then those of this rank's experts, [experts / expert_ranks, …].
/// In a pass with DividedSection::gradient a Parameter's `gradient` is [experts, …], of this rank's experts from the
/// rows of each rank of the run.
class ParameterSet {
 public:
  /// Runs of replicas that divide parameters, in ranks.
  struct Division {
    std::optional<std::int64_t> min_elements = std::nullopt;
    int unit_ranks = 0;  ///< 0: all replicas
    int expert_ranks = 1;
  };

  explicit ParameterSet(Mesh const& mesh) : ParameterSet(mesh, Division()) {}
  ParameterSet(Mesh const& mesh, Division const& division);

  /// Whether the replicas divide the values of large units.
  bool divides_units() const { return division_.min_elements.has_value(); }
  int expert_ranks() const { return division_.expert_ranks; }
  /// The stacks of this grid declare parameters from now on: where their placements say tensor, the grid's axes split
  /// them, and gradients are partial over the other axes that divide its sequences. At first the decoder's.
  void set_grid(Grid grid) { grid_ = grid; }
  /// Declares a parameter with one use: the layer that is being built. Throws Error for a name that is taken and
  /// ConfigError where a rank would hold nothing of the parameter.
  Parameter& declare(ParameterSpec spec);
  /// Declares adjacent parameters; the block lives as long as the set. Throws as declare does, and Error if the
  /// members' shards differ in size between ranks or several stages hold one.
  ParameterBlock& declare_block(std::vector<ParameterSpec> specs);
  /// Declares a parameter for layers that are built later: each of them calls add_use.
  Parameter& reserve(ParameterSpec spec);
  /// Adds a use: another layer adds to the parameter's gradient, once in a backward pass.
  void add_use(Parameter const& parameter) { uses_.push_back(&parameter); }
  /// Declares that these parameters are used together; it lives as long as the set. What several units name is theirs
  /// at any time: it stays whole.
  ParameterUnit& add_unit(std::span<Parameter const* const> used);
  /// Declares counts of a layer's choices, zero when the set is allocated; they live as long as the set.
  ChoiceCounts& count_choices(ChoiceCounts counts);
  std::deque<ChoiceCounts> const& choices() const { return choices_; }
  /// All of their sums, one layer's after the other's; empty if there are none.
  Tensor const& choice_sums() const { return choice_sums_; }
  /// Takes the values of another set's parameters with the same names, of which `chosen` is true, where they are, and
  /// with their ids, so that a packed copy serves both sets: they have no place and no gradient here. A block is taken
  /// whole or not at all, and nothing twice. Called before `arrange`; the owner's values do not change afterwards.
  void share_values(ParameterSet const& owner, std::function<bool(std::string const& name)> const& chosen);
  /// Computes every parameter's place and the set's size, without allocating memory.
  void arrange();
  /// Arranges and makes the buffers (values uninitialised, gradients zero); no parameter can be declared afterwards.
  void allocate(DType dtype);
  /// The elements of the buffers that this rank holds.
  struct BufferSizes {
    std::int64_t values = 0, gradients = 0;
    std::int64_t rounded = 0;  ///< in bfloat16
  };
  BufferSizes held_sizes() const;
  /// Puts the parameters into given buffers of the held sizes, after `arrange`, and is otherwise as allocate; the
  /// caller clears the gradients, which may be empty.
  void bind(Tensor const& values, Tensor const& gradients, Tensor const& rounded = Tensor());
  /// Gives the unit's parameters the values and gradients that its sections now have, or takes them away.
  void bind_unit(ParameterUnit const& unit);
  /// Gives the parameters and blocks that are not frozen their places in the buffer of gradients, and takes them from
  /// the others: called when that has changed.
  void bind_gradients();
  /// Fills every value from (seed, initializer key, global index).
  void initialize(std::uint64_t seed);

  std::deque<Parameter>& all() { return parameters_; }
  std::deque<Parameter> const& all() const { return parameters_; }
  /// The parameter of that name; null if there is none.
  Parameter* find(std::string const& name);
  Parameter const* find(std::string const& name) const;
  /// The parameters in the order in which layers were built (that of the forward pass), one entry for each use.
  std::vector<Parameter const*> const& uses() const { return uses_; }
  /// The parameters of the uses after the first `before`: those of a layer that was built since.
  std::vector<Parameter const*> uses_since(std::size_t before) const {
    return {uses_.begin() + static_cast<std::ptrdiff_t>(before), uses_.end()};
  }
  /// The parameters with a gradient in the order of their places.
  std::vector<Parameter const*> trained() const;
  /// The places of all values, padding included; padding is and stays zero.
  std::int64_t size() const { return size_; }
  /// The places before the rounded parameters.
  std::int64_t value_size() const { return value_size_; }
  /// The places with a gradient: those before the frozen parameters.
  std::int64_t gradient_size() const { return gradient_size_; }
  Tensor const& values() const { return values_; }        ///< what this rank holds of them
  Tensor const& rounded() const { return rounded_; }      ///< the same, in bfloat16; empty if there are none
  Tensor const& gradients() const { return gradients_; }  ///< what this rank holds of them
  /// Elements by their places, which are all in this rank's part of one section, or in none. Throws Error otherwise.
  Tensor values_in(IndexRange const& places) const;
  Tensor gradients_in(IndexRange const& places) const;
  /// The units and the sections of the buffers, the latter in the order of their places.
  std::deque<ParameterUnit>& units() { return units_; }
  std::deque<ParameterUnit> const& units() const { return units_; }
  std::vector<DividedSection const*> sections() const;
  /// The section that has the place; null if there is none.
  DividedSection const* section_of(std::int64_t place) const;
  /// The section that has the parameter; null if there is none.
  DividedSection const* section_of(Parameter const& parameter) const {
    return parameter.shared ? nullptr : section_of(parameter.place.begin);
  }
  /// Whether a sum over the model and the replicas counts what this rank holds: Placement::counts, and of the copies of
  /// a section's parts only the first.
  bool counts(Parameter const& parameter) const;
  /// The places of those of a parameter's elements whose values this rank holds.
  IndexRange held_places(Parameter const& parameter) const;
  /// Must be called after the values were changed.
  void bump_versions();

 private:
  using Group = std::vector<Parameter*>;
  using Groups = std::span<Group>;
  /// Gives groups that are all trained, frozen or rounded their places: those that are whole, then the sections.
  void place_all(Groups groups);
  /// Gives a parameter, or the members of a block, their places at the end of the buffer.
  void place(Group const& group);
  /// Makes a section of the groups, which are of one unit.
  void place_section(ParameterUnit& unit, Groups groups);
  /// Makes a section of a mixture's parameter, which is used in parts.
  void place_experts(Parameter& parameter);
  bool divides_experts(Group const& group) const { return expert_ranks() > 1 && group.front()->spec.of_experts; }
  /// Whether the replicas divide the values of these groups of a unit.
  bool divides(Groups groups) const;
  bool used_once(Groups groups) const;
  /// The places in a buffer with memory only for what this rank holds.
  IndexRange held(IndexRange const& places, bool gradient) const;
  Tensor whole_values(IndexRange const& places) const;
  Tensor whole_gradient(IndexRange const& places) const;
  /// The placement of a parameter that is declared now, on a mesh where stacks have grids of their own.
  Placement in_grid(Placement placement) const;
  void bind_choices();
  void bind_values(Parameter& parameter);
  void bind_values(ParameterBlock& block);
  void bind_gradient(Parameter& parameter, bool frozen);
  void bind_gradient(ParameterBlock& block);
  /// The unit of a division by the replicas.
  std::int64_t divisible() const;

  Mesh mesh_;
  Division division_;
  Grid grid_ = Grid::decoder;
  std::deque<Parameter> parameters_;
  std::deque<ParameterBlock> blocks_;
  std::deque<ParameterUnit> units_;
  std::deque<DividedSection> sections_;  ///< by their places
  std::vector<Parameter const*> uses_;
  std::deque<ChoiceCounts> choices_;
  Tensor choice_sums_;
  std::int64_t size_ = 0;
  std::int64_t gradient_size_ = 0;
  std::int64_t value_size_ = 0;
  Tensor values_;
  Tensor rounded_;
  Tensor gradients_;
};

/// Follows a step's last backward pass, so that a gradient can be reduced while others are still computed.
class GradientProgress {
 public:
  virtual ~GradientProgress() = default;
  /// One of the parameter's uses (see ParameterSet::uses) has added its last part of the step's gradient. After the
  /// last use the gradient is final: it must not change before the step's reduction is done.
  virtual void use_done(Parameter const& parameter) = 0;
  /// Moves the communication in progress on. Layers call it between pieces of work.
  virtual void progress() = 0;
};

/// One use of a unit in a pass; `gradient`: its gradient is computed then.
struct UnitUse {
  ParameterUnit* unit = nullptr;
  bool gradient = false;
};

/// Gathers the values of units that the replicas divide, before they are used. Every replica makes the same passes.
class ParameterAccess {
 public:
  virtual ~ParameterAccess() = default;
  /// Begins a pass through a part of the model, with the uses of its units in their order; those of units without
  /// sections are left out. Collective over the replicas, as are the other calls.
  virtual void begin(std::vector<UnitUse> uses) = 0;
  /// The next use begins: afterwards the unit's parameters have their values and, with `gradient`, a gradient of zero.
  virtual void use(ParameterUnit& unit, bool gradient) = 0;
  /// It ends: the values are taken away, and the gradient is on its way to the sum over replicas and micro-batches.
  virtual void done(ParameterUnit& unit) = 0;
  /// Moves the communication in progress on.
  virtual void progress() = 0;
  /// Whether results and gradients may not depend on how many replicas divide experts: each rank's rows are computed by
  /// themselves, as where nothing is divided (see DividedSection::gradient).
  virtual bool keeps_ranks_apart() const = 0;
};

}  // namespace heddle
