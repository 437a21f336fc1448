#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/description.hpp>

namespace heddle {

namespace {

/// The layer of the one list to which a boundary of a stack belongs.
std::int64_t clamped(std::int64_t index, std::int64_t layers) {
  return std::clamp<std::int64_t>(index, 0, std::max<std::int64_t>(layers - 1, 0));
}

bool holds(IndexRange const& part, std::int64_t layer) {
  return layer >= part.begin && layer < part.end;
}

std::optional<std::string> unsupported_in(StackDescription const& stack, LayerUse const& use) {
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
  throw Error(fmt::format("a model of {} layers has none beyond them", layers()));
}

std::string ModelDescription::describe() const {
  std::vector<std::string> parts;
  for (StackDescription const& stack : stacks) {
    parts.push_back(fmt::format("the {}'s {}", stack.name, stack.count()));
  }
  return fmt::format("{} {}", fmt::join(parts, " and "), layers() == 1 ? "layer" : "layers");
}

std::optional<std::string> ModelDescription::unsupported_reason(LayerUse const& use) const {
  for (StackDescription const& stack : stacks) {
    if (auto reason = unsupported_in(stack, use)) {
      return reason;
    }
  }
  return std::nullopt;
}

bool ModelDescription::needs_prefixes() const {
  return !unsupported_reason({}) && unsupported_reason({.prefixes = false});
}

std::optional<std::string> ModelDescription::untrainable_reason() const {
  for (StackDescription const& stack : stacks) {
    bool const predicts_next = stack.side == Side::target;
    LayerUse const use{.prefixes = predicts_next && stacks.size() == 1, .predicts_next = predicts_next};
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
  if (!reason && model.stacks.size() < 2) {
    reason = fmt::format("{} = {} has no encoder, whose input is translated", model.keys.place("stacks"),
                         to_toml(OptionValue(model.keys.stacks)));
  }
  return reason;
}

void require_translation(ModelDescription const& model, std::string const& wanted_by, std::string const& remedy) {
  if (auto const reason = no_translation_reason(model)) {
    throw ConfigError(fmt::format("{} needs a model that translates: {}{}", wanted_by, *reason, remedy));
  }
}

ModelDescription describe_model(ModelConfig const& model, LayerRegistry const& registry) {
  ModelDescription description{model, {}};
  for (std::string const& name : model.stacks) {
    StackDescription stack = describe_stack(model, stack_kind(name), registry);
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
