#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/parameters/parameter.hpp>
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

/// The number of elements that every rank reserves: the size of the largest shard.
std::int64_t reserved_elements(Parameter const& parameter, Mesh const& mesh) {
  std::int64_t elements = 1;
  for (int axis = 0; axis < parameter.global_shape().rank(); ++axis) {
    int const shards = parameter.placement().shards_along(axis, mesh.shape());
    elements *= (parameter.global_shape()[axis] + shards - 1) / shards;
  }
  return elements;
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

template <class Element>
void initialize_value(Parameter const& parameter, std::uint64_t seed) {
  using Real = kernels::ArithmeticType<Element>;
  std::vector<Element> host(static_cast<std::size_t>(parameter.local_shape.size()));
  std::uint64_t const key = random_key(seed, parameter.spec.key());
  auto element = host.begin();
  parameter.slice.for_each_run({0, std::ssize(host)}, [&](std::int64_t, std::int64_t first, std::int64_t count) {
    for (std::int64_t index = first; index < first + count; ++index) {
      auto const global = static_cast<std::uint64_t>(parameter.spec.initializer_offset + index);
      *element++ = static_cast<Element>(static_cast<Real>(initial_value(parameter.spec.initializer, key, global)));
    }
  });
  copy_from_host(parameter.value, host.data());
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
    for (int axis = 0; axis < spec.placement.global_shape.rank(); ++axis) {
      uneven |= spec.placement.global_shape[axis] % spec.placement.shards_along(axis, mesh_.shape()) != 0;
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
  return trained;
}

void ParameterSet::arrange() {
  std::vector<Group> groups;
  for (Parameter& parameter : parameters_) {
    if (!parameter.shared) {
      parameter.follows ? groups.back().push_back(&parameter) : groups.push_back({&parameter});
    }
  }
  auto const is_rounded = [](Group const& group) { return group.front()->spec.rounded; };
  auto const is_frozen = [&](Group const& group) {
    return is_rounded(group) || std::ranges::all_of(group, [](Parameter const* each) { return each->rule.frozen; });
  };
  auto const frozen = std::ranges::stable_partition(groups, std::not_fn(is_frozen));
  auto const rounded = std::ranges::stable_partition(frozen, std::not_fn(is_rounded));
  auto const place_all = [this](auto begin, auto end) {
    std::for_each(begin, end, [this](Group const& group) { place(group); });
  };
  size_ = 0;
  place_all(groups.begin(), frozen.begin());
  size_ = gradient_size_ = rounded_up(size_, divisible());
  place_all(frozen.begin(), rounded.begin());
  value_size_ = size_;
  place_all(rounded.begin(), rounded.end());
}

std::int64_t ParameterSet::divisible() const {
  return line_elements * mesh_.shape().size(replica_axes());
}

void ParameterSet::place(Group const& group) {
  bool const alone = std::ranges::any_of(
      group, [](Parameter const* each) { return each->placement().on_several_stages() || each->updated_whole(); });
  if (alone) {
    size_ = rounded_up(size_, divisible());
  }
  for (Parameter* const parameter : group) {
    std::int64_t const end = size_ + reserved_elements(*parameter, mesh_);
    parameter->place = {size_, parameter == group.back() ? rounded_up(end, line_elements) : end};
    size_ = parameter->place.end;
  }
  if (alone) {
    size_ = rounded_up(size_, divisible());
  }
}

void ParameterSet::allocate(DType dtype) {
  arrange();
  std::int64_t const rounded = size_ - value_size_;
  bind(Tensor::allocate(dtype, {value_size_}), Tensor::allocate(dtype, {gradient_size_}),
       rounded > 0 ? Tensor::allocate(DType::bfloat16, {rounded}) : Tensor());
}

Tensor ParameterSet::values_in(IndexRange const& places) const {
  bool const rounded = places.begin >= value_size_ && value_size_ < size_;
  return rounded ? rounded_.rows(places.begin - value_size_, places.count())
                 : values_.rows(places.begin, places.count());
}

void ParameterSet::bind(Tensor const& values, Tensor const& gradients, Tensor const& rounded) {
  values_ = values;
  gradients_ = gradients;
  rounded_ = rounded;
  auto const elements = [this](IndexRange const& place, std::int64_t count) {
    return values_in({place.begin, place.begin + count});
  };
  for (Parameter& parameter : parameters_) {
    Shape const& shape = parameter.local_shape;
    if (!parameter.shared) {
      parameter.value = elements(parameter.place, shape.size()).reshaped(shape);
    }
  }
  for (ParameterBlock& block : blocks_) {
    if (!block.members.front()->shared) {
      block.value = elements(block.members.front()->place, block.size());
    }
  }
  bind_gradients();
}

void ParameterSet::bind_gradients() {
  auto const gradient = [&](std::int64_t begin, std::int64_t count) {
    bool const has_place = !gradients_.empty() && begin + count <= gradient_size_;
    return has_place ? gradients_.rows(begin, count) : Tensor();
  };
  auto const bind_parameter = [&](Parameter& parameter, bool frozen) {
    Tensor const flat =
        frozen || parameter.shared ? Tensor() : gradient(parameter.place.begin, parameter.local_shape.size());
    parameter.gradient = flat.empty() ? flat : flat.reshaped(parameter.local_shape);
  };
  for (Parameter& parameter : parameters_) {
    bind_parameter(parameter, parameter.still_frozen);
  }
  for (ParameterBlock& block : blocks_) {
    bool const still_frozen =
        std::ranges::all_of(block.members, [](Parameter const* each) { return each->shared || each->frozen(); });
    for (Parameter* const member : block.members) {
      bind_parameter(*member, still_frozen);
    }
    block.gradient = still_frozen ? Tensor() : gradient(block.members.front()->place.begin, block.size());
  }
}

void ParameterSet::initialize(std::uint64_t seed) {
  for (Parameter const& parameter : parameters_) {
    kernels::with_floating(parameter.value.dtype(),
                           [&]<class Element>(Element) { initialize_value<Element>(parameter, seed); });
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
