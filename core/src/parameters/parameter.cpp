#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <iterator>
#include <map>
#include <numbers>
#include <numeric>

namespace heddle {

namespace {

/// The parameter of that name; null if there is none.
template <class Parameters>
auto find_in(Parameters& parameters, std::string const& name) -> decltype(&parameters.front()) {
  auto const found = std::ranges::find(
      parameters, name, [](Parameter const& each) -> auto const& { return each.spec.name; });
  return found == parameters.end() ? nullptr : &*found;
}

/// The shape with another first extent.
Shape with_first(Shape const& shape, std::int64_t extent) {
  std::vector<std::int64_t> extents = shape.to_vector();
  extents.front() = extent;
  return Shape(extents);
}

/// Uniform in (0, 1) with 53 bits, from two random words.
double uniform(std::uint32_t high, std::uint32_t low) {
  auto const bits = (std::uint64_t{high} << 21) ^ (std::uint64_t{low} >> 11);
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-53;
}

double initial_value(Initializer const& initializer, std::uint64_t key, std::uint64_t index) {
  switch (initializer.kind) {
    case Initializer::Kind::zeros:
      return 0;
    case Initializer::Kind::ones:
      return 1;
    case Initializer::Kind::normal:
    case Initializer::Kind::uniform:
      break;
  }
  auto const words =
      Philox::words(key, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0});
  double const first = uniform(words[0], words[1]);
  if (initializer.kind == Initializer::Kind::uniform) {
    return initializer.scale * (2 * first - 1);
  }
  double const angle = 2 * std::numbers::pi * uniform(words[2], words[3]);
  return initializer.scale * std::sqrt(-2 * std::log(first)) * std::cos(angle);
}

/// Fills `values` with these elements of the parameter's slice.
template <class Element>
void initialize_values(Parameter const& parameter, IndexRange const& elements, Tensor const& values,
                       std::uint64_t seed) {
  using Real = kernels::ArithmeticType<Element>;
  std::vector<Element> host(static_cast<std::size_t>(elements.count()));
  std::uint64_t const key = random_key(seed, parameter.spec.key());
  auto element = host.begin();
  parameter.slice.for_each_run(elements, [&](std::int64_t, std::int64_t first, std::int64_t count) {
    for (std::int64_t index = first; index < first + count; ++index) {
      auto const global = static_cast<std::uint64_t>(parameter.spec.initializer_offset + index);
      *element++ = static_cast<Element>(static_cast<Real>(initial_value(parameter.spec.initializer, key, global)));
    }
  });
  copy_from_host(values, host.data());
}

/// Identifies parameters in the caches of kernels that outlive a model, so an id never repeats within a process.
std::uint64_t next_parameter_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

Initializer Initializer::xavier_uniform(std::int64_t fan_in, std::int64_t fan_out) {
  return {Kind::uniform, std::sqrt(6.0 / static_cast<double>(fan_in + fan_out))};
}

std::int64_t ParameterBlock::size() const {
  return std::accumulate(members.begin(), members.end(), std::int64_t{0},
                         [](std::int64_t sum, Parameter const* member) { return sum + member->local_shape.size(); });
}

WeightVersion ParameterBlock::weight_version() const {
  WeightVersion all = members.front()->weight_version();
  all.version = std::accumulate(members.begin(), members.end(), std::uint64_t{0},
                                [](std::uint64_t sum, Parameter const* member) { return sum + member->version; });
  return all;
}

ParameterSet::ParameterSet(Mesh const& mesh, Division const& division) : mesh_(mesh), division_(division) {
  int const replicas = mesh.shape().size(replica_axes());
  if (replicas == 1) {
    division_.min_elements.reset();
  }
  if (division_.unit_ranks == 0) {
    division_.unit_ranks = replicas;
  }
}

ParameterUnit& ParameterSet::add_unit(std::span<Parameter const* const> used) {
  ParameterUnit& unit = units_.emplace_back();
  auto const is_used = [&](Parameter const& parameter) { return std::ranges::count(used, &parameter) > 0; };
  for (Parameter& parameter : parameters_) {
    if (is_used(parameter)) {
      unit.members.push_back(&parameter);
    }
  }
  for (ParameterBlock& block : blocks_) {
    if (is_used(*block.members.front())) {
      unit.blocks.push_back(&block);
    }
  }
  return unit;
}

Placement ParameterSet::in_grid(Placement placement) const {
  if (!mesh_.shape().has_grids()) {
    return placement;
  }
  MeshAxes const tensor = MeshShape::tensor_axes(grid_);
  auto const widen = [&](MeshAxes& axes) {
    if (auto const found = std::ranges::find(axes, MeshAxis::tensor); found != axes.end()) {
      axes.insert(axes.erase(found), tensor.begin(), tensor.end());
    }
  };
  std::ranges::for_each(placement.shards, widen);
  widen(placement.gradient_partial_over);
  placement.gradient_partial_over.push_back(MeshShape::context_axes(grid_).back());
  return placement;
}

Parameter& ParameterSet::declare(ParameterSpec spec) {
  Parameter& parameter = reserve(std::move(spec));
  add_use(parameter);
  return parameter;
}

Parameter& ParameterSet::reserve(ParameterSpec spec) {
  if (!values_.empty()) {
    throw Error("parameter {}: the set is allocated already", spec.name);
  }
  if (find(spec.name) != nullptr) {
    throw Error("parameter {}: the name is taken", spec.name);
  }
  if (spec.matrix && spec.placement.global_shape.rank() != 2) {
    throw Error("parameter {} {}: a matrix has two dimensions", spec.name, spec.placement.global_shape.to_string());
  }
  spec.placement = in_grid(std::move(spec.placement));
  Parameter parameter{.spec = std::move(spec)};
  parameter.slice = parameter.placement().slice(mesh_.shape(), mesh_.rank());
  std::vector<std::int64_t> extents;
  for (IndexRange const& range : parameter.slice.ranges()) {
    auto const axis = static_cast<int>(extents.size());
    int const shards = parameter.placement().shards_along(axis, mesh_.shape());
    if (std::int64_t const extent = parameter.global_shape()[axis]; extent < shards) {
      MeshAxes const& over = parameter.placement().shards[extents.size()];
      throw ConfigError("parameter {} {}: axis {} is too short for parallel.{} = {}; expected at most {}",
                        parameter.spec.name, parameter.global_shape().to_string(), axis, mesh_.group(over).name, shards,
                        extent);
    }
    extents.push_back(range.count());
  }
  parameter.local_shape = Shape(extents);
  parameter.id = next_parameter_id();
  return parameters_.emplace_back(std::move(parameter));
}

ParameterBlock& ParameterSet::declare_block(std::vector<ParameterSpec> specs) {
  ParameterBlock block;
  bool const rounded = specs.front().rounded;
  for (ParameterSpec& spec : specs) {
    bool uneven = false;
    Placement const placement = in_grid(spec.placement);
    for (int axis = 0; axis < placement.global_shape.rank(); ++axis) {
      uneven |= placement.global_shape[axis] % placement.shards_along(axis, mesh_.shape()) != 0;
    }
    if (specs.size() > 1 && (uneven || !spec.placement.stages.empty() || spec.rounded != rounded)) {
      throw Error("parameter {}: a member of a block has the same size on every rank, one stage, and the others' dtype",
                  spec.name);
    }
    Parameter& parameter = declare(std::move(spec));
    parameter.follows = !block.members.empty();
    block.members.push_back(&parameter);
  }
  return blocks_.emplace_back(std::move(block));
}

ChoiceCounts& ParameterSet::count_choices(ChoiceCounts counts) {
  return choices_.emplace_back(std::move(counts));
}

/// Makes the counts' memory, once.
void ParameterSet::bind_choices() {
  std::int64_t size = 0;
  for (ChoiceCounts const& layer : choices_) {
    size += layer.experts + 1;
  }
  if (size > 0 && choice_sums_.empty()) {
    choice_sums_ = from_doubles(std::vector<double>(static_cast<std::size_t>(size)), DType::float64, {size});
  }
  std::int64_t place = 0;
  for (ChoiceCounts& layer : choices_) {
    layer.sums = choice_sums_.rows(place, layer.experts + 1);
    place += layer.experts + 1;
  }
}

void ParameterSet::share_values(ParameterSet const& owner, std::function<bool(std::string const& name)> const& chosen) {
  auto const original_of = [&](Parameter const& parameter) -> Parameter const* {
    Parameter const* const found = parameter.shared ? nullptr : owner.find(parameter.spec.name);
    bool const alike = found != nullptr && found->local_shape == parameter.local_shape &&
                       found->spec.rounded == parameter.spec.rounded;
    return alike && chosen(parameter.spec.name) ? found : nullptr;
  };
  std::map<Parameter*, Parameter const*> originals;
  for (Parameter& parameter : parameters_) {
    if (Parameter const* const original = original_of(parameter)) {
      originals[&parameter] = original;
    }
  }
  auto const is_of = [&](Parameter* mine, Parameter const* its) {
    auto const found = originals.find(mine);
    return found != originals.end() && found->second == its;
  };
  for (ParameterBlock& block : blocks_) {
    auto const original = std::ranges::find_if(owner.blocks_, [&](ParameterBlock const& other) {
      return std::ranges::equal(block.members, other.members, is_of);
    });
    if (original != owner.blocks_.end()) {
      block.value = original->value;
    } else {
      std::ranges::for_each(block.members, [&](Parameter* member) { originals.erase(member); });
    }
  }
  for (auto const& [parameter, original] : originals) {
    parameter->shared = true;
    parameter->value = original->value;
    parameter->id = original->id;
    parameter->version = original->version;
  }
}

std::vector<Parameter const*> ParameterSet::trained() const {
  std::vector<Parameter const*> trained;
  for (Parameter const& parameter : parameters_) {
    if (!parameter.shared && parameter.place.end <= gradient_size_) {
      trained.push_back(&parameter);
    }
  }
  std::ranges::stable_sort(trained, {}, [](Parameter const* each) { return each->place.begin; });
  return trained;
}

void ParameterSet::allocate(DType dtype) {
  arrange();
  BufferSizes const sizes = held_sizes();
  bind(Tensor::allocate(dtype, {sizes.values}), Tensor::allocate(dtype, {sizes.gradients}),
       sizes.rounded > 0 ? Tensor::allocate(DType::bfloat16, {sizes.rounded}) : Tensor());
}

ParameterSet::BufferSizes ParameterSet::held_sizes() const {
  BufferSizes sizes{value_size_, gradient_size_, size_ - value_size_};
  for (DividedSection const& section : sections_) {
    std::int64_t const others = section.range.count() - section.own.count();
    (section.rounded ? sizes.rounded : sizes.values) -= others;
    sizes.gradients -= section.divides_gradient ? others : 0;
  }
  return sizes;
}

DividedSection const* ParameterSet::section_of(std::int64_t place) const {
  auto const after = std::ranges::upper_bound(sections_, place, {}, [](auto const& each) { return each.range.begin; });
  bool const has_it = after != sections_.begin() && place < std::prev(after)->range.end;
  return has_it ? &*std::prev(after) : nullptr;
}

std::vector<DividedSection const*> ParameterSet::sections() const {
  std::vector<DividedSection const*> sections;
  std::ranges::transform(sections_, std::back_inserter(sections), [](DividedSection const& each) { return &each; });
  return sections;
}

bool ParameterSet::counts(Parameter const& parameter) const {
  DividedSection const* const section = section_of(parameter);
  bool const first_copy = section == nullptr || mesh_.shape().place(replica_axes(), mesh_.rank()) < section->parts;
  return first_copy && parameter.placement().counts(mesh_);
}

IndexRange ParameterSet::held_places(Parameter const& parameter) const {
  IndexRange places{parameter.place.begin, parameter.place.begin + parameter.local_shape.size()};
  if (DividedSection const* const section = section_of(parameter)) {
    places.begin = std::clamp(section->own.begin, places.begin, places.end);
    places.end = std::clamp(section->own.end, places.begin, places.end);
  }
  return places;
}

IndexRange ParameterSet::held(IndexRange const& places, bool gradient) const {
  std::int64_t missing = 0;  // before the places
  for (DividedSection const& section : sections_) {
    bool const divided = !gradient || section.divides_gradient;
    bool const overlaps = places.begin < section.range.end && section.range.begin < places.end;
    if (divided && overlaps) {
      if (places.begin < section.own.begin || places.end > section.own.end) {
        throw Error("places [{}, {}) are not all in this rank's part [{}, {}) of the parameters", places.begin,
                    places.end, section.own.begin, section.own.end);
      }
      missing += section.own.begin - section.range.begin;
    } else if (divided && section.range.end <= places.begin) {
      missing += section.range.count() - section.own.count();
    }
  }
  return {places.begin - missing, places.end - missing};
}

Tensor ParameterSet::values_in(IndexRange const& places) const {
  IndexRange const here = held(places, false);
  bool const rounded = places.begin >= value_size_ && value_size_ < size_;
  return rounded ? rounded_.rows(here.begin - values_.size(), here.count()) : values_.rows(here.begin, here.count());
}

Tensor ParameterSet::gradients_in(IndexRange const& places) const {
  IndexRange const here = held(places, true);
  return gradients_.rows(here.begin, here.count());
}

/// Values by their places, as they are now: of a section all or none.
Tensor ParameterSet::whole_values(IndexRange const& places) const {
  DividedSection const* const section = section_of(places.begin);
  if (section == nullptr) {
    return values_in(places);
  }
  return section->values.empty() ? Tensor() : section->values.rows(places.begin - section->range.begin, places.count());
}

/// The gradient by its places, as it is now; empty where there is none.
Tensor ParameterSet::whole_gradient(IndexRange const& places) const {
  if (gradients_.empty() || places.end > gradient_size_) {
    return {};
  }
  DividedSection const* const section = section_of(places.begin);
  if (section == nullptr || !section->divides_gradient) {
    return gradients_in(places);
  }
  return section->gradient.empty() ? Tensor()
                                   : section->gradient.rows(places.begin - section->range.begin, places.count());
}

void ParameterSet::bind_values(Parameter& parameter) {
  Shape const& shape = parameter.local_shape;
  if (DividedSection const* const section = section_of(parameter); section != nullptr && section->in_parts) {
    parameter.value = values_in(section->own).reshaped(with_first(shape, shape[0] / section->parts));
    return;
  }
  Tensor const flat = whole_values({parameter.place.begin, parameter.place.begin + shape.size()});
  parameter.value = flat.empty() ? flat : flat.reshaped(shape);
}

void ParameterSet::bind_values(ParameterBlock& block) {
  std::int64_t const begin = block.members.front()->place.begin;
  block.value = whole_values({begin, begin + block.size()});
}

void ParameterSet::bind(Tensor const& values, Tensor const& gradients, Tensor const& rounded) {
  values_ = values;
  gradients_ = gradients;
  rounded_ = rounded;
  bind_choices();
  for (Parameter& parameter : parameters_) {
    if (!parameter.shared) {
      bind_values(parameter);
    }
  }
  for (ParameterBlock& block : blocks_) {
    if (!block.members.front()->shared) {
      bind_values(block);
    }
  }
  bind_gradients();
}

void ParameterSet::bind_gradient(Parameter& parameter, bool frozen) {
  Shape const& shape = parameter.local_shape;
  bool const has_none = frozen || parameter.shared || gradients_.empty() || parameter.place.end > gradient_size_;
  if (DividedSection const* const section = section_of(parameter); section != nullptr && section->in_parts) {
    if (has_none) {
      parameter.gradient = Tensor();
    } else if (section->gradient.empty()) {
      parameter.gradient = gradients_in(section->own).reshaped(with_first(shape, shape[0] / section->parts));
    } else {
      parameter.gradient = section->gradient.reshaped(shape);
    }
    return;
  }
  Tensor const flat =
      has_none ? Tensor() : whole_gradient({parameter.place.begin, parameter.place.begin + shape.size()});
  parameter.gradient = flat.empty() ? flat : flat.reshaped(shape);
}

void ParameterSet::bind_gradient(ParameterBlock& block) {
  bool const still_frozen =
      std::ranges::all_of(block.members, [](Parameter const* each) { return each->shared || each->frozen(); });
  for (Parameter* const member : block.members) {
    bind_gradient(*member, still_frozen);
  }
  std::int64_t const begin = block.members.front()->place.begin;
  block.gradient = still_frozen ? Tensor() : whole_gradient({begin, begin + block.size()});
}

void ParameterSet::bind_gradients() {
  for (Parameter& parameter : parameters_) {
    bind_gradient(parameter, parameter.still_frozen);
  }
  for (ParameterBlock& block : blocks_) {
    bind_gradient(block);
  }
}

void ParameterSet::bind_unit(ParameterUnit const& unit) {
  for (Parameter* const member : unit.members) {
    if (section_of(*member) != nullptr) {
      bind_values(*member);
      bind_gradient(*member, member->still_frozen);
    }
  }
  for (ParameterBlock* const block : unit.blocks) {
    if (block->members.front()->gathered) {
      bind_values(*block);
      bind_gradient(*block);
    }
  }
}

void ParameterSet::initialize(std::uint64_t seed) {
  for (Parameter const& parameter : parameters_) {
    IndexRange const places = held_places(parameter);
    if (places.count() == 0) {
      continue;
    }
    Tensor const values = parameter.shared ? parameter.value.reshaped({parameter.value.size()}) : values_in(places);
    IndexRange const elements{places.begin - parameter.place.begin, places.end - parameter.place.begin};
    kernels::with_floating(
        values.dtype(), [&]<class Element>(Element) { initialize_values<Element>(parameter, elements, values, seed); });
  }
  bump_versions();
}

Parameter* ParameterSet::find(std::string const& name) {
  return find_in(parameters_, name);
}

Parameter const* ParameterSet::find(std::string const& name) const {
  return find_in(parameters_, name);
}

void ParameterSet::bump_versions() {
  for (Parameter& parameter : parameters_) {
    parameter.version += parameter.shared ? 0 : 1;
  }
}

}  // namespace heddle
