#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/timings.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/core/training/optimizer.hpp>

namespace heddle {

namespace {

/// A thread's elements of an update whose gradients are then set to zero: they, the values and Adam's state take 1 MiB,
/// which stays in the cache.
constexpr std::int64_t cached_elements = std::int64_t{1} << 16;

}  // namespace

Optimizer::Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters,
                     std::vector<IndexRange> parts)
    : config_(config),
      has_averages_(heddle::has_averages(config, kernels.registries)),
      parameters_(parameters),
      parts_(std::move(parts)) {
  assign_rules(config, kernels.registries, parameters);
  for (Parameter const& parameter : parameters.all()) {
    bool const has_place = !parameters.gradients().empty() && parameter.place.end <= parameters.gradient_size();
    if (!parameter.rule.frozen && !has_place) {
      throw Error("parameter {} has no gradient: it was frozen when the set was allocated", parameter.spec.name);
    }
  }
  ranges_ = rule_ranges(parameters);
  add_rules(kernels);
  find_zeros();
  group();
  if (config.average == Average::lawa) {
    parts_of_mean_ = UploadedTensor(DType::float64, {config.average_count});
    for (std::int64_t index = 0; index < config.average_count; ++index) {
      parts_of_mean_.host().data<double>()[index] = 1 / static_cast<double>(index + 1);
    }
    parts_of_mean_.upload();
  }
}

void Optimizer::regroup() {
  ranges_ = rule_ranges(parameters_);
  std::vector<Rule> rules;
  for (RuleRange const& range : ranges_) {
    rules.push_back(*std::ranges::find(rules_, range.first->rule, &Rule::chosen));
    rules.back().state_begin = range.first->state_begin;
  }
  rules_ = std::move(rules);
  group();
}

void Optimizer::group() {
  pieces_.clear();
  add_pieces();
  place_state();
  place_directions();
  scalars_ = UploadedTensor(DType::float64, {std::ssize(rules_), update_scalars::count});
  shares_ = UploadedTensor(DType::float64, {std::ssize(rules_)});
  updates_ = Tensor::allocate_on_host(DType::int32, {std::ssize(rules_)});
}

void Optimizer::add_rules(KernelSource const& kernels) {
  DType const dtype = parameters_.values().dtype();
  operations_ = kernels.select<TensorOps>({dtype});
  for (RuleRange const& range : ranges_) {
    UpdateRule const& chosen = range.first->rule;
    Rule rule{.definition = {}, .kernel = nullptr, .chosen = chosen};
    if (!chosen.frozen) {
      rule.definition = rule_definition(kernels.registries, chosen.name, config_.places.of("name"));
      rule.options = option_values(rule.definition, chosen.options);
      rule.form = value_form(chosen);
      rule.kernel = kernels.select<Update>({chosen.name, dtype});
      if (rule.definition.scope == RuleDefinition::Scope::matrices) {
        functions_[range.first] =
            rule.definition.matrices.function(kernels, matrix_of(*range.first, rule.definition, dtype));
      }
    }
    bool const transformed = rule.form.offset != 0 || rule.form.scale != 1;
    any_transformed_ = any_transformed_ || transformed;
    if ((transformed || has_averages()) && scratch_.empty()) {
      scratch_ = Tensor::allocate(dtype, {cached_elements});
    }
    rules_.push_back(std::move(rule));
  }
}

void Optimizer::find_zeros() {
  for (Parameter const& parameter : parameters_.all()) {
    if (parameter.rule.zero_last_row && parameter.slice.ranges().front().end == parameter.global_shape()[0]) {
      std::int64_t const end = parameter.place.begin + parameter.local_shape.size();
      zeros_.push_back({end - parameter.local_shape.size() / parameter.local_shape[0], end});
    }
  }
}

void Optimizer::add_pieces() {
  for (IndexRange const& part : parts_) {
    for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
      auto const& [rule_range, first] = ranges_[rule];
      IndexRange piece{std::max(part.begin, rule_range.begin), std::min(part.end, rule_range.end)};
      if (piece.begin >= piece.end || first->rule.frozen) {
        continue;
      }
      if (first->updated_whole()) {
        piece = {first->place.begin, first->place.begin + first->local_shape.size()};
        if (piece.begin < part.begin || piece.end > part.end) {
          throw Error("the matrix {} has one owner, but [{}, {}) has only a part of it", first->spec.name, part.begin,
                      part.end);
        }
      }
      pieces_.push_back({piece, rule, {}, {}});
    }
  }
}

void Optimizer::place_state() {
  std::map<std::string, std::int64_t> elements;
  for (Piece const& piece : pieces_) {
    for (std::string const& key : rules_[piece.rule].definition.state) {
      elements[key] += piece.range.count();
    }
    if (rules_[piece.rule].chosen.averaged) {
      elements[average_key] += piece.range.count();
    }
    for (std::int64_t index = 0; index < rules_[piece.rule].chosen.averaged_values; ++index) {
      elements[averaged_key(index)] += piece.range.count();
    }
  }
  for (auto& [key, place] : elements) {
    if (!state_.contains(key)) {
      state_[key] = Tensor::allocate(parameters_.values().dtype(), {place});
    }
    place = 0;
  }
  auto const next = [&](std::string const& key, Piece const& piece) {
    std::int64_t const begin = elements[key];
    elements[key] += piece.range.count();
    return state_[key].rows(begin, piece.range.count());
  };
  for (Piece& piece : pieces_) {
    std::vector<std::string> const& keys = rules_[piece.rule].definition.state;
    for (std::size_t index = 0; index < keys.size(); ++index) {
      piece.state.at(index) = next(keys[index], piece);
      piece.average = keys[index] == average_key ? piece.state.at(index) : piece.average;
    }
    if (rules_[piece.rule].chosen.averaged) {
      piece.average = next(average_key, piece);
    }
    for (std::int64_t index = 0; index < rules_[piece.rule].chosen.averaged_values; ++index) {
      piece.averaged.push_back(next(averaged_key(index), piece));
    }
  }
}

void Optimizer::place_directions() {
  if (directions_.empty()) {
    std::int64_t elements = 0;
    std::int64_t sizes = 0;
    for (Piece const& piece : pieces_) {
      RuleDefinition const& rule = rules_[piece.rule].definition;
      elements += rule.whole() ? rounded_up(piece.range.count(), line_elements) : 0;
      sizes += rule.sizes ? 2 : 0;
    }
    directions_ = elements > 0 ? Tensor::allocate(parameters_.values().dtype(), {elements}) : Tensor();
    squares_ = sizes > 0 ? Tensor::allocate(DType::float64, {sizes}) : Tensor();
  }
  std::int64_t begin = 0;
  std::int64_t size = 0;
  for (Piece& piece : pieces_) {
    RuleDefinition const& rule = rules_[piece.rule].definition;
    if (rule.whole()) {
      piece.direction = directions_.rows(begin, piece.range.count());
      begin += rounded_up(piece.range.count(), line_elements);
    }
    if (rule.sizes) {
      piece.squares = squares_.rows(size, 2);
      size += 2;
    }
  }
}

std::vector<Optimizer::Matrix> Optimizer::matrices() const {
  std::vector<Matrix> matrices;
  for (Piece const& piece : pieces_) {
    Parameter const* const parameter = ranges_[piece.rule].first;
    if (auto const function = functions_.find(parameter); function != functions_.end()) {
      RuleDefinition const& rule = rules_[piece.rule].definition;
      matrices.push_back({parameter, piece.direction.reshaped(parameter->local_shape), function->second,
                          matrix_state(rule, matrix_of(*parameter, rule, piece.direction.dtype()))});
    }
  }
  return matrices;
}

void Optimizer::direct(Execution& execution) const {
  if (!squares_.empty()) {
    operations_->fill(execution, squares_, 0);
  }
  for_each_whole([&](Piece const& piece) {
    Rule const& rule = rules_[piece.rule];
    UpdateCall call = call_for(piece, piece.range);
    if (rule.definition.sizes) {
      operations_->copy(execution, call.value, piece.direction);
      add(execution, piece.direction, -rule.form.offset);
      operations_->add_sum_of_squares(execution, piece.direction, piece.squares.rows(0, 1));
    }
    call.value = piece.direction;
    rule.kernel->direct(execution, call);
  });
}

std::vector<Optimizer::Squares> Optimizer::squares(Execution& execution) const {
  std::vector<Squares> squares;
  if (squares_.empty()) {
    return squares;
  }
  for_each_whole([&](Piece const& piece) {
    if (!piece.squares.empty()) {
      operations_->add_sum_of_squares(execution, piece.direction, piece.squares.rows(1, 1));
    }
  });
  std::vector<double> sums(static_cast<std::size_t>(squares_.size()));
  copy_to_host(sums.data(), squares_, &execution);
  auto const* next = sums.data();
  for (Piece const& piece : pieces_) {
    if (!piece.squares.empty()) {
      squares.push_back({ranges_[piece.rule].first, next[0], next[1]});
      next += 2;
    }
  }
  return squares;
}

void Optimizer::set_squares(std::vector<Squares> const& whole) const {
  auto next = whole.begin();
  for (Piece const& piece : pieces_) {
    if (!piece.squares.empty()) {
      auto const elements = static_cast<double>(next->parameter->global_shape().size());
      double* const scalars =
          scalars_.host().data<double>() + static_cast<std::int64_t>(piece.rule) * update_scalars::count;
      scalars[update_scalars::value_size] = std::sqrt(next->value / elements) / std::abs(rules_[piece.rule].form.scale);
      scalars[update_scalars::direction_size] = std::sqrt(next->direction / elements);
      ++next;
    }
  }
  scalars_.upload();
}

void Optimizer::begin(Step const& step) const {
  auto* next = scalars_.host().data<double>();
  auto* shares = shares_.host().data<double>();
  auto* updates = updates_.data<std::int32_t>();
  for (Rule const& rule : rules_) {
    Step ruled_step = step;
    ruled_step.learning_rate *= rule.chosen.learning_rate_factor * rule.form.scale;
    ruled_step.gradient_scale *= rule.form.scale;
    ruled_step.step -= rule.state_begin;
    ruled_step.warmup_steps = config_.warmup_steps;
    next = std::ranges::copy(update_scalars_of(rule.definition, rule.options, ruled_step), next).out;
    *shares++ = share_of_newest(ruled_step.step);
    *updates++ = static_cast<std::int32_t>(ruled_step.step);
  }
  scalars_.upload();
  shares_.upload();
}

double Optimizer::share_of_newest(std::int64_t step) const {
  // The first value is the average; then the average covers about the last ninth of the steps, until that is more than
  // the decay makes it cover.
  auto const before = static_cast<double>(step - 1);
  return 1 - std::min(config_.average_decay, before / (before + 9));
}

std::vector<Optimizer::Piece>::const_iterator Optimizer::first_piece(std::int64_t begin) const {
  return std::ranges::partition_point(pieces_, [=](Piece const& piece) { return piece.range.end <= begin; });
}

void Optimizer::apply(Execution& execution, IndexRange const& range, GradientsAfter after) const {
  std::int64_t cleared = range.begin;
  auto const clear_until = [&](std::int64_t end) {
    if (after == GradientsAfter::zero && cleared < end) {
      operations_->fill(execution, parameters_.gradients_in({cleared, end}), 0);
    }
    cleared = end;
  };
  std::int64_t const cached = cached_elements * compute_threads();
  for (auto piece = first_piece(range.begin); piece != pieces_.end() && piece->range.begin < range.end; ++piece) {
    if (ranges_[piece->rule].first->still_frozen) {
      continue;
    }
    IndexRange const updated{std::max(range.begin, piece->range.begin), std::min(range.end, piece->range.end)};
    clear_until(updated.begin);
    std::int64_t const step = after == GradientsAfter::kept ? updated.count() : cached;
    for (std::int64_t begin = updated.begin; begin < updated.end; begin += step) {
      IndexRange const block{begin, std::min(begin + step, updated.end)};
      update(execution, *piece, block);
      clear_until(block.end);
    }
  }
  clear_until(range.end);
}

UpdateCall Optimizer::call_for(Piece const& piece, IndexRange const& updated) const {
  Rule const& rule = rules_[piece.rule];
  auto const elements = [&](Tensor const& of, std::int64_t first) { return of.rows(first, updated.count()); };
  UpdateCall call{
      .rule = rule.definition.name,
      .value = parameters_.values_in(updated),
      .gradient = parameters_.gradients_in(updated),
      .scalars = scalars_.tensor().rows(static_cast<std::int64_t>(piece.rule), 1).reshaped({update_scalars::count}),
      .options = rule.options,
      .weight_decay = rule.chosen.weight_decay / rule.form.scale};
  for (std::size_t index = 0; index < rule.definition.state.size(); ++index) {
    call.state.at(index) = elements(piece.state.at(index), updated.begin - piece.range.begin);
  }
  return call;
}

void Optimizer::update(Execution& execution, Piece const& piece, IndexRange const& updated) const {
  Rule const& rule = rules_[piece.rule];
  UpdateCall call = call_for(piece, updated);
  if (!piece.direction.empty()) {
    call.gradient = piece.direction.rows(updated.begin - piece.range.begin, updated.count());
  }
  double const offset = rule.chosen.weight_decay > 0 ? rule.form.offset : 0;  // only the decay depends on it
  add(execution, call.value, -offset);
  rule.kernel->update(execution, call);
  add(execution, call.value, offset);
  Tensor const average =
      piece.average.empty() ? Tensor() : piece.average.rows(updated.begin - piece.range.begin, updated.count());
  if (rule.chosen.averaged) {
    follow(execution, piece, updated, call.value);
  } else if (!average.empty()) {
    add(execution, average, offset);  // the rule has made it of the values less the offset
  }
  for (IndexRange const& zero : zeros_) {
    if (IndexRange const here{std::max(zero.begin, updated.begin), std::min(zero.end, updated.end)};
        here.begin < here.end) {
      operations_->fill(execution, call.value.rows(here.begin - updated.begin, here.count()), 0);
      if (!average.empty()) {
        operations_->fill(execution, average.rows(here.begin - updated.begin, here.count()), 0);
      }
    }
  }
}

void Optimizer::follow(Execution& execution, Piece const& piece, IndexRange const& updated, Tensor const& value) const {
  IndexRange const own{updated.begin - piece.range.begin, updated.end - piece.range.begin};
  if (!piece.averaged.empty()) {
    follow_latest(execution, piece, own, value);
    return;
  }
  operations_->mix(execution, piece.average.rows(own.begin, own.count()), value,
                   shares_.tensor().rows(static_cast<std::int64_t>(piece.rule), 1));
}

void Optimizer::follow_latest(Execution& execution, Piece const& piece, IndexRange const& own,
                              Tensor const& value) const {
  auto const part = [&](Tensor const& of) { return of.rows(own.begin, own.count()); };
  auto const count = std::ssize(piece.averaged);
  std::int64_t const updates = updates_.data<std::int32_t>()[piece.rule];
  std::int64_t const kept = updates / config_.average_every;
  if (kept == 0) {
    operations_->copy(execution, value, part(piece.average));
  }
  if (kept == 0 || updates % config_.average_every != 0) {
    return;
  }
  // The newest come first, so that those that a resume with other keys finds are the newest, too. The first ones fill
  // all: none is zero where the count grows.
  for (std::int64_t index = count - 1; index >= 0; --index) {
    Tensor const before = index == 0 || kept == 1 ? value : part(piece.averaged[static_cast<std::size_t>(index - 1)]);
    operations_->copy(execution, before, part(piece.averaged[static_cast<std::size_t>(index)]));
  }
  operations_->copy(execution, value, part(piece.average));
  for (std::int64_t index = 1; index < std::min(kept, count); ++index) {
    operations_->mix(execution, part(piece.average), part(piece.averaged[static_cast<std::size_t>(index)]),
                     parts_of_mean_.tensor().rows(index, 1));
  }
}

void Optimizer::swap_averages(Execution& execution, IndexRange const& range, std::int64_t updates) const {
  for (auto piece = first_piece(range.begin); piece != pieces_.end() && piece->range.begin < range.end; ++piece) {
    if (piece->average.empty() || ranges_[piece->rule].first->still_frozen ||
        updates <= rules_[piece->rule].state_begin) {
      continue;
    }
    IndexRange const swapped{std::max(range.begin, piece->range.begin), std::min(range.end, piece->range.end)};
    for (std::int64_t begin = swapped.begin; begin < swapped.end; begin += cached_elements) {
      std::int64_t const count = std::min(cached_elements, swapped.end - begin);
      Tensor const value = parameters_.values_in({begin, begin + count});
      Tensor const average = piece->average.rows(begin - piece->range.begin, count);
      Tensor const kept = scratch_.rows(0, count);
      operations_->copy(execution, value, kept);
      operations_->copy(execution, average, value);
      operations_->copy(execution, kept, average);
    }
  }
}

void Optimizer::add(Execution& execution, Tensor const& numbers, double number) const {
  for (std::int64_t begin = 0; number != 0 && begin < numbers.dim(0); begin += cached_elements) {
    Tensor const added = scratch_.rows(0, std::min(cached_elements, numbers.dim(0) - begin));
    operations_->fill(execution, added, number);
    operations_->add(execution, numbers.rows(begin, added.dim(0)), added);
  }
}

void Optimizer::add_sum_of_squares(Execution& execution, IndexRange const& range, Tensor const& sum) const {
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
    bool const alike = !any_transformed_;  // no rule has another scale: one sum
    IndexRange const part = alike ? range
                                  : IndexRange{std::max(range.begin, ranges_[rule].range.begin),
                                               std::min(range.end, ranges_[rule].range.end)};
    double const scale = rules_[rule].form.scale;
    std::int64_t const step = scale == 1 ? part.count() : cached_elements;
    for (std::int64_t begin = part.begin; begin < part.end; begin += step) {
      Tensor const own = parameters_.gradients_in({begin, std::min(begin + step, part.end)});
      Tensor const scaled = scale == 1 ? own : scratch_.rows(0, own.dim(0));
      if (scale != 1) {
        operations_->copy(execution, own, scaled);
        operations_->scale(execution, scaled, scale);
      }
      operations_->add_sum_of_squares(execution, scaled, sum);
    }
    if (alike) {
      return;
    }
  }
}

Tensor Optimizer::state_in(std::string const& key, IndexRange const& range) const {
  auto const piece = first_piece(range.begin);
  if (piece != pieces_.end() && range.begin >= piece->range.begin && range.end <= piece->range.end) {
    auto const part = [&](Tensor const& of) { return of.rows(range.begin - piece->range.begin, range.count()); };
    if (key == average_key && !piece->average.empty()) {
      return part(piece->average);
    }
    std::vector<std::string> const& keys = rules_[piece->rule].definition.state;
    if (auto const found = std::ranges::find(keys, key); found != keys.end()) {
      return part(piece->state.at(static_cast<std::size_t>(found - keys.begin())));
    }
    for (std::size_t index = 0; index < piece->averaged.size(); ++index) {
      if (key == averaged_key(static_cast<std::int64_t>(index))) {
        return part(piece->averaged[index]);
      }
    }
  }
  throw Error("{} of [{}, {}) is not kept in one piece here", key, range.begin, range.end);
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = directions_.bytes();
  for (auto const& [key, tensor] : state_) {
    bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace heddle
