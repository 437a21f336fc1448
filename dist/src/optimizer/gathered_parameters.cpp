#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/optimizer/gathered_parameters.hpp>
#include <numeric>
#include <ranges>
#include <utility>

namespace heddle {

namespace {

constexpr std::size_t line_bytes = 64;

std::size_t bytes_of(std::int64_t elements, DType dtype) {
  std::size_t const bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

/// The two largest, the largest first.
std::vector<std::size_t> two_largest(std::vector<std::size_t> sizes) {
  std::ranges::sort(sizes, std::ranges::greater());
  sizes.resize(std::min<std::size_t>(sizes.size(), 2));
  return sizes;
}

DividedSection* section_with_gradient(ParameterUnit const& unit) {
  auto const found = std::ranges::find_if(
      unit.sections, [](DividedSection const* each) { return each->divides_gradient && !each->in_parts; });
  return found == unit.sections.end() ? nullptr : *found;
}

/// Whether something of the unit is gathered; the rest is used in parts.
bool gathers(ParameterUnit const& unit) {
  return !std::ranges::all_of(unit.sections, &DividedSection::in_parts);
}

}  // namespace

GatheredParameters::GatheredParameters(ParallelState const& parallel, ParameterSet& parameters,
                                       std::shared_ptr<TensorOps> operations, Execution& execution,
                                       Options const& options)
    : replicas_((parallel.shards.size() > 1 ? parallel.shards : parallel.replicas).after(execution)),
      parameters_(parameters),
      operations_(std::move(operations)),
      execution_(execution),
      rounds_(options.activations == DType::bfloat16),
      observer_(options.observer) {
  std::vector<std::size_t> values;
  std::vector<std::size_t> gradients;
  for (ParameterUnit const& unit : parameters.units()) {
    if (!gathers(unit)) {
      continue;
    }
    values.push_back(value_bytes_of(unit));
    if (DividedSection const* const section = section_with_gradient(unit)) {
      gradients.push_back(bytes_of(section->range.count(), parameters.gradients().dtype()));
    }
  }
  for (std::size_t const bytes : two_largest(values)) {
    values_.emplace_back(bytes, options.arena);
  }
  for (std::size_t const bytes : two_largest(gradients)) {
    gradients_.emplace_back(bytes, options.arena);
  }
}

DType GatheredParameters::dtype_of(DividedSection const& section) const {
  bool const rounded = section.rounded || (rounds_ && section.used_rounded);
  return rounded ? DType::bfloat16 : parameters_.values().dtype();
}

std::size_t GatheredParameters::value_bytes_of(ParameterUnit const& unit) const {
  std::size_t bytes = 0;
  for (DividedSection const* const section : unit.sections) {
    bytes += section->in_parts ? 0 : bytes_of(section->range.count(), dtype_of(*section));
  }
  return bytes;
}

void GatheredParameters::begin(std::vector<UnitUse> uses) {
  if (next_ != uses_.size()) {
    throw Error("a pass through the model used {} of its {} units with divided parameters", next_, uses_.size());
  }
  uses_ = std::move(uses);
  next_ = 0;
}

void GatheredParameters::use(ParameterUnit& unit, bool gradient) {
  if (next_ == uses_.size() || uses_[next_].unit != &unit || uses_[next_].gradient != gradient) {
    throw Error("the unit of parameter {} is not the next that the pass was to use", unit.members.front()->spec.name);
  }
  in_use_ = gathers(unit) ? gathered(unit) : nullptr;
  ++next_;
  gather_next();
  for (std::size_t index = 0; in_use_ != nullptr && index < unit.sections.size(); ++index) {
    unit.sections[index]->values = in_use_->sections[index];
  }
  if (gradient && trees_ != nullptr) {
    begin_leaves(unit);
  }
  DividedSection* const with_gradient = gradient ? section_with_gradient(unit) : nullptr;
  if (with_gradient != nullptr) {
    begin_gradient(*with_gradient);
  }
  parameters_.bind_unit(unit);
}

void GatheredParameters::done(ParameterUnit& unit) {
  for (DividedSection* const section : unit.sections) {
    if (section->in_parts && !section->gradient.empty()) {
      trees_->add_parts(*section, section->gradient);
    }
    section->values = Tensor();
    section->gradient = Tensor();
  }
  parameters_.bind_unit(unit);
  in_use_ = nullptr;
  if (computed_ != nullptr) {
    start_reduce();
  }
  gather_next();
}

/// The unit's values, when they have arrived.
GatheredParameters::Values* GatheredParameters::gathered(ParameterUnit& unit) {
  Values* values = find(unit);
  if (values == nullptr) {
    values = start_gather(unit);
  }
  WorkScope const work(observer_, {WorkKind::waiting, "replicas.all_gather"});
  std::ranges::for_each(values->transfers, [](Transfer& transfer) { transfer.wait(); });
  return values;
}

/// Gives the sections that are used in parts memory for the gradients from each rank's rows, which are leaves of the
/// trees.
void GatheredParameters::begin_leaves(ParameterUnit const& unit) {
  leaves_.release(0);
  for (DividedSection* const section : unit.sections) {
    if (section->in_parts && section->divides_gradient) {
      section->gradient = leaves_.allocate(parameters_.gradients().dtype(), {section->parts, section->own.count()});
      operations_->fill(execution_, section->gradient, 0);
    }
  }
}

GatheredParameters::Values* GatheredParameters::find(ParameterUnit const& unit) {
  auto const found = std::ranges::find_if(
      values_, [&](Values const& each) { return each.unit == &unit && each.version == unit.members.front()->version; });
  return found == values_.end() ? nullptr : &*found;
}

/// Null where the memory that is large enough is in use. What it held is not needed again: with two places only one
/// is free.
GatheredParameters::Values* GatheredParameters::start_gather(ParameterUnit& unit) {
  std::size_t const needed = value_bytes_of(unit);
  // The smaller one first: the larger may be wanted for the next unit.
  for (Values& values : values_ | std::views::reverse) {
    if (&values == in_use_ || values.capacity < needed) {
      continue;
    }
    std::ranges::for_each(values.transfers, [](Transfer& transfer) { transfer.wait(); });
    values.transfers.clear();
    values.sections.clear();
    values.unit = &unit;
    values.version = unit.members.front()->version;
    values.arena.release(0);
    for (DividedSection const* const section : unit.sections) {
      if (section->in_parts) {
        values.sections.emplace_back();
        continue;
      }
      Tensor const whole = values.arena.allocate(dtype_of(*section), {section->range.count()});
      Tensor own = parameters_.values_in(section->own);
      if (own.dtype() != whole.dtype()) {
        Tensor const rounded = whole.rows(section->own.begin - section->range.begin, section->own.count());
        operations_->copy(execution_, own, rounded);
        own = rounded;
      }
      values.transfers.push_back(replicas_.start_all_gather(own, whole));
      values.sections.push_back(whole);
    }
    return &values;
  }
  return nullptr;
}

/// Starts to gather the next use's unit, where there is memory for it.
void GatheredParameters::gather_next() {
  if (next_ < uses_.size() && gathers(*uses_[next_].unit) && find(*uses_[next_].unit) == nullptr) {
    static_cast<void>(start_gather(*uses_[next_].unit));
  }
}

void GatheredParameters::begin_gradient(DividedSection& section) {
  std::size_t const needed = bytes_of(section.range.count(), parameters_.gradients().dtype());
  auto const is_free = [&](Gradient const& each) { return each.section == nullptr && each.capacity >= needed; };
  auto const places = gradients_ | std::views::reverse;
  auto found = std::ranges::find_if(places, is_free);
  for (; found == places.end(); found = std::ranges::find_if(places, is_free)) {
    WorkScope const work(observer_, {WorkKind::waiting, "replicas.reduce_scatter"});
    under_way_.front()->transfer.wait();
    add_first();
  }
  computed_ = &*found;
  computed_->section = &section;
  computed_->arena.release(0);
  computed_->whole = computed_->arena.allocate(parameters_.gradients().dtype(), {section.range.count()});
  operations_->fill(execution_, computed_->whole, 0);
  section.gradient = computed_->whole;
}

void GatheredParameters::start_reduce() {
  Gradient& gradient = *std::exchange(computed_, nullptr);
  DividedSection const& section = *gradient.section;
  if (trees_ != nullptr) {
    trees_->add(section, gradient.whole);
    gradient.section = nullptr;
    return;
  }
  Tensor const own = gradient.whole.rows(section.own.begin - section.range.begin, section.own.count());
  gradient.transfer = replicas_.start_reduce_scatter(gradient.whole, own);
  under_way_.push_back(&gradient);
}

/// A section's gradients of several micro-batches may be under way at once, and are added in their order.
void GatheredParameters::add_first() {
  Gradient& gradient = *under_way_.front();
  under_way_.pop_front();
  DividedSection const& section = *std::exchange(gradient.section, nullptr);
  Tensor const own = gradient.whole.rows(section.own.begin - section.range.begin, section.own.count());
  operations_->add(execution_, parameters_.gradients_in(section.own), own);
}

void GatheredParameters::progress() {
  for (Values& values : values_) {
    std::ranges::for_each(values.transfers, [](Transfer& transfer) { static_cast<void>(transfer.progress()); });
  }
  std::ranges::for_each(under_way_, [](Gradient* each) { static_cast<void>(each->transfer.progress()); });
  while (!under_way_.empty() && under_way_.front()->transfer.progress()) {
    add_first();
  }
}

void GatheredParameters::finish() {
  WorkScope const work(observer_, {WorkKind::waiting, "replicas.reduce_scatter"});
  while (!under_way_.empty()) {
    under_way_.front()->transfer.wait();
    add_first();
  }
}

std::int64_t GatheredParameters::value_bytes() const {
  return std::transform_reduce(values_.begin(), values_.end(), std::int64_t{0}, std::plus(),
                               [](Values const& each) { return static_cast<std::int64_t>(each.arena.peak()); });
}

std::int64_t GatheredParameters::gradient_bytes() const {
  std::int64_t bytes = 0;
  for (Gradient const& each : gradients_) {
    auto const whole = static_cast<std::int64_t>(each.arena.peak());
    bytes += whole + whole / replicas_.size() * (replicas_.size() - 1);
  }
  return bytes;
}

}  // namespace heddle
