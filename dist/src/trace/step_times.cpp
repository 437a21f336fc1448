#include <fmt/format.h>

#include <heddle/dist/trace/step_times.hpp>
#include <string_view>

#include "step_times_state.hpp"

namespace heddle {

namespace {

constexpr double nanosecond = 1e-9;

Verb verb_named(std::string_view name) {
  for (std::size_t index = 0; index < verbs; ++index) {
    if (name_of(static_cast<Verb>(index)) == name) {
      return static_cast<Verb>(index);
    }
  }
  return Verb::barrier;
}

}  // namespace

MeasuredCall MeasuredCall::of(VerbCall const& call) {
  // A split waits for all ranks, too.
  return {call.verb == Verb::split ? Verb::barrier : call.verb, call.payload().bytes(),
          call.is_message() ? call.peer : -1};
}

MeasuredGroup& StepTimes::State::group_named(std::string_view name) {
  for (MeasuredGroup& group : groups) {
    if (group.group.name == name) {
      return group;
    }
  }
  return groups.emplace_back(MeasuredGroup{{std::string(name), {}}, {}});
}

void StepTimes::State::enter() {
  if (in_step && depth++ == 0) {
    entered = StepTrace::now();
  }
}

void StepTimes::State::leave(MeasuredGroup& group, MeasuredCall const& call) {
  if (!in_step || --depth > 0) {
    return;
  }
  std::int64_t const ended = StepTrace::now();
  group.nanoseconds[static_cast<std::size_t>(call.verb)] += ended - entered;
  seconds.communicating += nanosecond * static_cast<double>(ended - entered);
  if (traces()) {
    add_to_trace(call.started ? WorkKind::waiting : WorkKind::communication, group, call, entered, ended);
  }
}

void StepTimes::State::add_transfer(MeasuredGroup const& group, MeasuredCall const& call, std::int64_t began) {
  if (in_step && traces() && began > 0) {
    add_to_trace(WorkKind::transfer, group, call, began, StepTrace::now());
  }
}

void StepTimes::State::add_to_trace(WorkKind kind, MeasuredGroup const& group, MeasuredCall const& call,
                                    std::int64_t began, std::int64_t ended) {
  TraceEvent event{.begin = began, .end = ended, .number = call.bytes, .kind = kind};
  if (call.peer >= 0) {
    event.place = group.group.members[static_cast<std::size_t>(call.peer)];
  }
  trace->add(event, fmt::format("{}.{}", group.group.name, name_of(call.verb)), group.group.name);
}

StepTimes::StepTimes(StepTrace* trace) : state_(std::make_shared<State>()) {
  state_->trace = trace;
}

StepTimes::Step::Step(StepTimes& times, std::int64_t step)
    : times_(times), name_(fmt::format("step {}", step)), began_(StepTrace::now()) {
  if (times_.state_->trace != nullptr) {
    times_.state_->trace->begin({WorkKind::step, name_});
  }
  times_.state_->in_step = true;
  times_.state_->depth = 0;
}

StepTimes::Step::~Step() {
  State& state = *times_.state_;
  state.in_step = false;
  double const passed = nanosecond * static_cast<double>(StepTrace::now() - began_);
  if (state.trace != nullptr) {
    state.trace->end();
  }
  state.seconds.all += passed;
  state.seconds.first = state.seconds.steps == 0 ? passed : state.seconds.first;
  ++state.seconds.steps;
}

StepTimes::Data::Data(StepTimes& times)
    : times_(times), began_(StepTrace::now()), communicated_(times.state_->seconds.communicating) {}

StepTimes::Data::~Data() {
  State& state = *times_.state_;
  std::int64_t const ended = StepTrace::now();
  state.seconds.data +=
      nanosecond * static_cast<double>(ended - began_) - (state.seconds.communicating - communicated_);
  if (state.traces()) {
    state.trace->add({.begin = began_, .end = ended, .kind = WorkKind::data}, "reading", "");
  }
}

void StepTimes::begin(Work const& work) {
  open_.push_back(work);
  if (work.kind == WorkKind::waiting) {
    state_->enter();
  } else if (state_->trace != nullptr) {
    state_->trace->begin(work);
  }
}

void StepTimes::end() noexcept {
  Work const work = open_.back();
  open_.pop_back();
  if (work.kind == WorkKind::waiting) {
    std::size_t const dot = work.name.find('.');
    state_->leave(state_->group_named(work.name.substr(0, dot)),
                  {.verb = verb_named(work.name.substr(dot + 1)), .started = true});
  } else if (state_->trace != nullptr) {
    state_->trace->end();
  }
}

StepTimes::Seconds StepTimes::seconds() const {
  return state_->seconds;
}

std::map<std::string, double> StepTimes::by_verb() const {
  std::map<std::string, double> result;
  for (MeasuredGroup const& group : state_->groups) {
    for (std::size_t verb = 0; verb < verbs; ++verb) {
      if (group.nanoseconds[verb] > 0) {
        result[fmt::format("{}.{}", group.group.name, name_of(static_cast<Verb>(verb)))] +=
            nanosecond * static_cast<double>(group.nanoseconds[verb]);
      }
    }
  }
  return result;
}

}  // namespace heddle
