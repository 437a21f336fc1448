#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <chrono>
#include <heddle/core/measure/step_trace.hpp>
#include <heddle/core/tensor/execution.hpp>

namespace heddle {

namespace {

std::string region_name(Work const& work) {
  return work.kind == WorkKind::layer && work.direction == Direction::backward ? fmt::format("{} backward", work.name)
                                                                               : std::string(work.name);
}

}  // namespace

bool has_kokkos_tool() {
  return Kokkos::Tools::profileLibraryLoaded();
}

std::int64_t StepTrace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::uint32_t StepTrace::number_of(std::string_view text) {
  auto const [found, added] = numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
  if (added) {
    texts_.emplace_back(text);
  }
  return found->second;
}

void StepTrace::begin(Work const& work, std::int64_t time) {
  if (regions_) {
    Kokkos::Profiling::pushRegion(region_name(work));
  }
  if (!recording_) {
    open_.push_back(-1);
    return;
  }
  open_.push_back(static_cast<std::int64_t>(events_.size()));
  bool const pass = work.kind == WorkKind::pass;
  events_.push_back({.begin = time,
                     .number = work.micro_batch,
                     .place = pass ? work.part : -1,
                     .name = number_of(work.name),
                     .kind = work.kind,
                     .direction = work.direction});
}

void StepTrace::end(std::int64_t time) noexcept {
  if (regions_) {
    Kokkos::Profiling::popRegion();
  }
  std::int64_t const index = open_.back();
  open_.pop_back();
  if (index >= 0) {
    events_[static_cast<std::size_t>(index)].end = time;
  }
}

void StepTrace::observe(Execution& execution, KernelCall const& call) {
  if (!recording_ && !regions_) {
    call.make();
    return;
  }
  std::string const name = fmt::format("{} {}", call.operation, call.direction);
  if (recording_) {
    execution.space.fence();  // so that the kernels before it do not count as it
  }
  WorkScope const work(this, {WorkKind::kernel, name});
  if (recording_) {
    events_.back().detail = number_of(call.extents);
  }
  call.make();
  if (recording_) {
    execution.space.fence();
  }
}

void StepTrace::add(TraceEvent event, std::string_view name, std::string_view detail) {
  if (recording_) {
    event.name = number_of(name);
    event.detail = number_of(detail);
    events_.push_back(event);
  }
}

}  // namespace heddle
