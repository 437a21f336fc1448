#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/model/description.hpp>
#include <numeric>
#include <span>

#include "config/schema.hpp"

namespace heddle {

namespace {

/// The key or the way of computing that is asked for and not declared; "" where all are declared.
std::string undeclared(LayerCapabilities const& capabilities, LayerUse const& use) {
  if (use.tensor > 1 && !capabilities.tensor) {
    return fmt::format("parallel.tensor = {}", use.tensor);
  }
  if (use.tensor > 1 && use.sequence_parallel && !capabilities.sequence) {
    return "parallel.sequence_parallel";
  }
  if (use.context > 1 && !capabilities.context) {
    return fmt::format("parallel.context = {}", use.context);
  }
  if (use.decode && !capabilities.decode) {
    return "generation, token by token";
  }
  return use.devices && !capabilities.devices ? "kernels that run on a device" : "";
}

/// Options of a sublayer that no layer among `layers` has, nor `names`, are an error. `who`: "the encoder does",
/// "layers 4-6 of it do".
void require_used(Settings const& settings, std::span<LayerDescription const> layers, std::string const& who,
                  std::vector<std::string> names = {}) {
  for (LayerDescription const& layer : layers) {
    for (SublayerDescription const& sublayer : layer.sublayers) {
      if (std::ranges::find(names, sublayer.name) == names.end()) {
        names.push_back(sublayer.name);
      }
    }
  }
  for (auto const& [key, setting] : settings) {
    std::size_t const dot = key.find('.');
    std::string const sublayer = key.substr(0, dot);
    if (dot != std::string::npos && std::ranges::find(names, sublayer) == names.end()) {
      throw ConfigError("{}: {} is an option of {}, which {} not have; {}", setting.origin, key, sublayer, who,
                        nearest_or_all(sublayer, names));
    }
  }
}

/// `names` are the sublayers of a layer without keys of its own, which a stack without layers would have.
void require_used(StackConfig const& stack, StackDescription const& description, std::vector<std::string> names) {
  std::string const& name = description.name;
  std::span<LayerDescription const> const all(description.layers);
  if (!all.empty()) {
    names.clear();
  }
  if (!description.input.traits.options.empty()) {
    names.push_back(description.input.name);
  }
  require_used(stack.settings, all, fmt::format("the {} does", name), std::move(names));
  for (LayerOverride const& entry : stack.overrides) {
    auto const [begin, end] = entry.layers;
    auto const some = all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    require_used(entry.settings, some,
                 end == begin + 1 ? fmt::format("layer {} of the {} does", end, name)
                                  : fmt::format("layers {}-{} of the {} do", begin + 1, end, name));
  }
}

/// Positions that act in attention are not lost in a stack that has none.
void require_positions_taken(ModelConfig const& model, std::string const& name,
                             std::vector<LayerDescription> const& layers) {
  bool const taken = std::ranges::any_of(layers, &LayerDescription::takes_positions);
  if (act_in_attention(model.positions) && !layers.empty() && !taken) {
    throw ConfigError(
        "{} = \"{}\" acts in self_attention, but no layer of the {} has a sublayer that takes positions; "
        "\"sinusoidal\", \"learned\" and \"none\" need no such sublayer",
        model.place("positions"), name_of(model.positions), name);
  }
}

/// The layer of the one list to which a boundary of a stack belongs.
std::int64_t clamped(std::int64_t index, std::int64_t layers) {
  return std::clamp<std::int64_t>(index, 0, std::max<std::int64_t>(layers - 1, 0));
}

bool holds(IndexRange const& part, std::int64_t layer) {
  return layer >= part.begin && layer < part.end;
}

std::optional<std::string> unsupported_in(StackDescription const& stack, LayerUse const& use) {
  if (std::string const key = undeclared(stack.input.traits.capabilities, use); !key.empty()) {
    return fmt::format("{}: the input {} of the {} does not declare support for {}",
                       stack.keys->place(stack.name + "_input"), stack.input.name, stack.name, key);
  }
  for (LayerDescription const& layer : stack.layers) {
    for (SublayerDescription const& sublayer : layer.sublayers) {
      if (auto reason = sublayer.unsupported_reason(use)) {
        return reason;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Cost SublayerDescription::cost(LayerLoad const& load) const {
  if (traits.cost) {
    LayerLoad own = load;
    own.side = side;
    own.path = path;
    return traits.cost(*keys, options, own);
  }
  return linear_cost(load, keys->d_model, keys->d_ff) + linear_cost(load, keys->d_ff, keys->d_model);
}

std::optional<std::string> SublayerDescription::unsupported_reason(LayerUse const& use) const {
  std::string const key = undeclared(traits.capabilities, use);
  if (!key.empty()) {
    return fmt::format("{}: the layer {} ({}) does not declare support for {}", keys->place("sublayers"), name, path,
                       key);
  }
  auto const reason = traits.unsupported_reason ? traits.unsupported_reason(*keys, options, use) : std::nullopt;
  return reason ? std::optional(fmt::format("{} ({})", *reason, path)) : std::nullopt;
}

Cost LayerDescription::cost(LayerLoad const& load) const {
  Cost sum;
  for (SublayerDescription const& each : sublayers) {
    sum += (recomputes(each) ? 4.0 / 3 : 1.0) * each.cost(load);
  }
  return sum;
}

bool LayerDescription::takes_positions() const {
  return std::ranges::any_of(sublayers, &LayerTraits::takes_positions, &SublayerDescription::traits);
}

namespace {

/// The number of the layer, from 1, by whose number a layer's parameters are called, for each layer: its own unless
/// `tied_layers` of the stack says otherwise.
std::vector<std::int64_t> parameter_numbers(StackConfig const& stack, std::string const& name) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(stack.layers));
  std::iota(numbers.begin(), numbers.end(), 1);
  auto const given = stack.settings.find(tied_layers_key);
  if (given == stack.settings.end()) {
    return numbers;
  }
  auto const& tied = std::get<std::vector<std::int64_t>>(given->second.value);
  if (tied.size() != numbers.size() || std::ranges::max(tied) > stack.layers) {
    throw ConfigError(
        "{}{}model.{}.{} = {}: expected for each of the {} layers of the {} the number, 1 to {}, of the layer whose "
        "parameters it uses",
        given->second.origin, given->second.origin.empty() ? "" : ": ", name, tied_layers_key,
        to_toml(given->second.value), stack.layers, name, stack.layers);
  }
  return tied;
}

/// Finds the owners of the layers' parameters. Throws ConfigError for tied layers that have other settings.
void set_owners(StackConfig const& stack, std::vector<std::int64_t> const& numbers, StackDescription& description) {
  auto const settings_of = [&](std::int64_t layer) {
    auto const found = std::ranges::find_if(stack.overrides, [&](LayerOverride const& entry) {
      return layer >= entry.layers.begin && layer < entry.layers.end;
    });
    return found == stack.overrides.end() ? Settings() : found->settings;
  };
  for (std::int64_t index = 0; index < description.count(); ++index) {
    auto const number = numbers[static_cast<std::size_t>(index)];
    std::int64_t const owner = std::ranges::find(numbers, number) - numbers.begin();
    if (settings_of(index) != settings_of(owner)) {
      Setting const& given = stack.settings.at(tied_layers_key);
      throw ConfigError(
          "{4}{5}model.{0}.{1}: layers {2} and {3} of the {0} have the same parameters, but not the same keys in "
          "[model.{0}.layer]; set them for both",
          description.name, tied_layers_key, owner + 1, index + 1, given.origin, given.origin.empty() ? "" : ": ");
    }
    description.layers[static_cast<std::size_t>(index)].owner = owner;
  }
}

}  // namespace

StackDescription describe_stack(ModelConfig const& model, StackKind const& kind, LayerRegistry const& registry) {
  std::string const name(kind.name);
  Side const side = kind.predicts ? Side::target : Side::source;
  StackMember const stack = kind.config;
  auto const keys_of = [&](std::int64_t layer) {
    return std::make_shared<ModelConfig const>(layer_config(model, stack, layer));
  };
  std::string const& input = (model.*stack).input;
  StackDescription description{.name = name,
                               .side = side,
                               .encoder_side = {},
                               .keys = keys_of(-1),
                               .input = {input, layer_options(model.*stack, name, -1, input),
                                         registry.inputs.at(input, model.place(name + "_input")).traits},
                               .layers = {}};
  description.input.options.check(description.input.traits.options);
  std::vector<std::int64_t> const numbers = parameter_numbers(model.*stack, name);
  for (std::int64_t index = 0; index < (model.*stack).layers; ++index) {
    LayerDescription layer{.keys = keys_of(index), .sublayers = {}};
    for (std::string const& sublayer : (*layer.keys.*stack).sublayers) {
      std::string const path =
          fmt::format("{}.layers.{}.{}", name, numbers[static_cast<std::size_t>(index)] - 1, sublayer);
      LayerRegistry::Entry const& entry = registry.at(sublayer, layer.keys->place("sublayers"));
      LayerOptions options = layer_options(model.*stack, name, index, sublayer);
      options.check(entry.traits.options);
      layer.sublayers.push_back({sublayer, path, layer.keys, std::move(options), entry.traits, side});
      // Keys and options that do not go together are found now, not when the layer is built.
      layer.sublayers.back().cost({});
    }
    description.layers.push_back(std::move(layer));
  }
  set_owners(model.*stack, numbers, description);
  if (description.layers.empty()) {
    for (std::string const& sublayer : (*description.keys.*stack).sublayers) {
      auto const& traits = registry.at(sublayer, description.keys->place("sublayers")).traits;
      layer_options(model.*stack, name, -1, sublayer).check(traits.options);
    }
  }
  require_used(model.*stack, description, (*description.keys.*stack).sublayers);
  require_positions_taken(model, name, description.layers);
  return description;
}

std::int64_t ModelDescription::layers() const {
  std::int64_t count = 0;
  for (StackDescription const& stack : stacks) {
    count += stack.count();
  }
  return count;
}

IndexRange ModelDescription::range(std::size_t stack) const {
  IndexRange range;
  for (std::size_t before = 0; before < stack; ++before) {
    range.begin += stacks[before].count();
  }
  range.end = range.begin + stacks[stack].count();
  return range;
}

IndexRange ModelDescription::range_in(std::size_t stack, IndexRange const& part) const {
  IndexRange const whole = range(stack);
  std::int64_t const begin = std::clamp(part.begin, whole.begin, whole.end);
  return {begin - whole.begin, std::clamp(part.end, begin, whole.end) - whole.begin};
}

bool ModelDescription::has_entry(std::size_t stack, IndexRange const& part) const {
  return holds(part, clamped(range(stack).begin, layers()));
}

bool ModelDescription::has_exit(std::size_t stack, IndexRange const& part) const {
  IndexRange const whole = range(stack);
  return holds(part, clamped(whole.count() > 0 ? whole.end - 1 : whole.begin, layers()));
}

LayerDescription const& ModelDescription::layer(std::int64_t index) const {
  for (StackDescription const& stack : stacks) {
    if (index < stack.count()) {
      return stack.layers[static_cast<std::size_t>(index)];
    }
    index -= stack.count();
  }
  throw Error("a model of {} layers has none beyond them", layers());
}

bool ModelDescription::divides_tied_layers(std::int64_t index) const {
  for (std::size_t stack = 0; stack < stacks.size(); ++stack) {
    IndexRange const all = range(stack);
    for (std::int64_t later = std::max(index, all.begin); later < all.end; ++later) {
      if (all.begin + stacks[stack].layers[static_cast<std::size_t>(later - all.begin)].owner < index) {
        return true;
      }
    }
  }
  return false;
}

std::string ModelDescription::describe() const {
  std::vector<std::string> parts;
  for (StackDescription const& stack : stacks) {
    parts.push_back(fmt::format("the {}'s {}", stack.name, stack.count()));
  }
  return fmt::format("{} {}", fmt::join(parts, " and "), layers() == 1 ? "layer" : "layers");
}

std::optional<std::string> ModelDescription::unsupported_reason(LayerUse const& of_encoder,
                                                                LayerUse const& of_last) const {
  for (std::size_t stack = 0; stack < stacks.size(); ++stack) {
    if (auto reason = unsupported_in(stacks[stack], grid(stack) == Grid::encoder ? of_encoder : of_last)) {
      return reason;
    }
  }
  return std::nullopt;
}

SampleFields ModelDescription::fields() const {
  SampleFields fields;
  for (StackDescription const& stack : stacks) {
    for (LayerDescription const& layer : stack.layers) {
      for (SublayerDescription const& sublayer : layer.sublayers) {
        if (sublayer.traits.fields) {
          fields.merge(sublayer.traits.fields(sublayer.options));
        }
      }
    }
  }
  return fields;
}

std::optional<std::string> ModelDescription::untrainable_reason() const {
  for (StackDescription const& stack : stacks) {
    bool const predicts_next = stack.side == Side::target;
    LayerUse const use{.prefixes = predicts_next && keys.is_decoder_only(), .predicts_next = predicts_next};
    if (auto reason = unsupported_in(stack, use)) {
      return reason;
    }
  }
  return std::nullopt;
}

std::optional<std::string> ModelDescription::no_generation_reason() const {
  StackDescription const& last = stacks.back();
  if (last.side != Side::target) {
    return fmt::format("{} = {} has no decoder, which generates text; add \"decoder\"", keys.place("stacks"),
                       to_toml(OptionValue(keys.stacks)));
  }
  return unsupported_in(last, {.decode = true});
}

std::optional<std::string> no_translation_reason(ModelDescription const& model) {
  auto reason = model.no_generation_reason();
  if (!reason && !model.keys.is_encoder_decoder()) {
    reason = fmt::format("{} = {} has no encoder, whose input is translated", model.keys.place("stacks"),
                         to_toml(OptionValue(model.keys.stacks)));
  }
  return reason;
}

void require_translation(ModelDescription const& model, std::string const& wanted_by, std::string const& fix) {
  if (auto const reason = no_translation_reason(model)) {
    throw ConfigError("{} needs a model that translates: {}{}", wanted_by, *reason, fix);
  }
}

namespace {

/// Throws ConfigError for a table of fixed positions that would have more numbers than any model needs: with these keys
/// a file of another system could ask for any memory.
void require_table_of_positions(StackDescription const& stack) {
  constexpr std::int64_t max_numbers = std::int64_t{1} << 28;
  ModelConfig const& keys = *stack.keys;
  std::int64_t columns = keys.positions == Positions::sinusoidal ? keys.d_model : 0;
  for (LayerDescription const& layer : stack.layers) {
    for (SublayerDescription const& sublayer : layer.sublayers) {
      std::int64_t const heads = sublayer.keys->heads;
      std::int64_t const own = keys.positions == Positions::rotary
                                   ? sublayer.options.integer("head_dim", keys.d_model / heads)
                               : keys.positions == Positions::alibi ? 2 * heads
                                                                    : 0;
      columns = std::max(columns, own);
    }
  }
  if (columns > max_numbers / keys.max_length) {
    throw ConfigError("{} = {}: with {} columns the table of model.positions = \"{}\" would have more than {} elements",
                      keys.place("max_length"), keys.max_length, columns, name_of(keys.positions), max_numbers);
  }
}

}  // namespace

ModelDescription describe_model(ModelConfig const& model, LayerRegistry const& registry) {
  ModelDescription description{model, {}};
  for (std::string const& name : model.stacks) {
    StackDescription stack = describe_stack(model, stack_kind(name), registry);
    require_table_of_positions(stack);
    if (!description.stacks.empty()) {
      stack.encoder_side = description.stacks.back().side;
    }
    description.stacks.push_back(std::move(stack));
  }
  if (description.layers() == 0) {
    throw ConfigError("the model has no layer: each of its stacks has 0");
  }
  return description;
}

}  // namespace heddle
