#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <heddle/core/base/index_range.hpp>
#include <heddle/dist/trace/step_times.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "watch/decorated_backend.hpp"

namespace heddle {

namespace {

constexpr double nanosecond = 1e-9;

CollectiveOp collective_named(std::string_view name) {
  for (std::size_t index = 0; index < collectives; ++index) {
    if (name_of(static_cast<CollectiveOp>(index)) == name) {
      return static_cast<CollectiveOp>(index);
    }
  }
  return CollectiveOp::barrier;
}

}  // namespace

struct StepTimes::State {
  /// A group's nanoseconds by collective.
  struct Group {
    NamedGroup group;
    std::array<std::int64_t, collectives> nanoseconds{};
  };

  /// A collective that is called, or a transfer that is waited for.
  struct Call {
    CollectiveOp collective = CollectiveOp::barrier;
    std::int64_t bytes = -1;
    int peer = -1;  ///< the other rank of a message, in the group
    WorkKind kind = WorkKind::communication;

    static Call of(CollectiveCall const& call, WorkKind kind = WorkKind::communication) {
      // A split waits for all ranks, too.
      return {call.collective == CollectiveOp::split ? CollectiveOp::barrier : call.collective, call.payload().bytes(),
              call.is_message() ? call.peer : -1, kind};
    }
  };

  Group& group_named(std::string_view name) {
    for (Group& group : groups) {
      if (group.group.name == name) {
        return group;
      }
    }
    return groups.emplace_back(Group{{std::string(name), {}}, {}});
  }

  bool traces() const { return trace != nullptr && trace->recording(); }

  // While a collective is in progress, others inside it are not measured.
  void enter() {
    if (in_step && depth++ == 0) {
      entered = StepTrace::now();
    }
  }
  void leave(Group& group, Call const& call) {
    if (!in_step || --depth > 0) {
      return;
    }
    std::int64_t const ended = StepTrace::now();
    group.nanoseconds[static_cast<std::size_t>(call.collective)] += ended - entered;
    seconds.communicating += nanosecond * static_cast<double>(ended - entered);
    if (traces()) {
      add_to_trace(call.kind, group, call, {entered, ended});
    }
  }

  void add_to_trace(WorkKind kind, Group const& group, Call const& call, IndexRange const& time) {
    TraceEvent event{.begin = time.begin, .end = time.end, .number = call.bytes, .kind = kind};
    if (call.peer >= 0) {
      event.place = group.group.members[static_cast<std::size_t>(call.peer)];
    }
    trace->add(event, fmt::format("{}.{}", group.group.name, name_of(call.collective)), group.group.name);
  }

  StepTrace* trace = nullptr;
  Seconds seconds;
  bool in_step = false;
  int depth = 0;
  std::int64_t entered = 0;
  std::deque<Group> groups;
};

namespace {

using State = StepTimes::State;

/// Measures during its lifetime.
class MeasuredScope {
 public:
  MeasuredScope(State& state, State::Group& group, State::Call const& call)
      : state_(state), group_(group), call_(call) {
    state_.enter();
  }
  ~MeasuredScope() { state_.leave(group_, call_); }
  MeasuredScope(MeasuredScope const&) = delete;
  MeasuredScope& operator=(MeasuredScope const&) = delete;

 private:
  State& state_;
  State::Group& group_;
  State::Call const& call_;
};

class MeasuredTransfer final : public TransferBackend {
 public:
  MeasuredTransfer(std::unique_ptr<TransferBackend> inner, std::shared_ptr<State> state, State::Group& group,
                   State::Call const& call)
      : inner_(std::move(inner)),
        state_(std::move(state)),
        group_(group),
        call_(call),
        began_(state_->in_step && state_->traces() ? StepTrace::now() : 0) {}
  ~MeasuredTransfer() override {
    if (!done_) {
      MeasuredScope const scope(*state_, group_, call_);
      inner_.reset();  // waits
    }
  }

  bool progress() override {
    MeasuredScope const scope(*state_, group_, call_);
    return ended(inner_->progress());
  }
  void wait() override {
    MeasuredScope const scope(*state_, group_, call_);
    inner_->wait();
    ended(true);
  }

 private:
  bool ended(bool done) {
    if (done && !done_) {
      done_ = true;
      if (state_->in_step && state_->traces() && began_ > 0) {
        state_->add_to_trace(WorkKind::transfer, group_, call_, {began_, StepTrace::now()});
      }
    }
    return done;
  }

  std::unique_ptr<TransferBackend> inner_;
  std::shared_ptr<State> state_;
  State::Group& group_;
  State::Call call_;
  std::int64_t began_;
  bool done_ = false;
};

/// Measures how long this rank is in each collective, and waits for each transfer.
class MeasuredBackend final : public DecoratedBackend {
 public:
  MeasuredBackend(std::shared_ptr<CommunicatorBackend> inner, NamedGroup group, std::shared_ptr<State> state)
      : DecoratedBackend(std::move(inner), std::move(group)),
        state_(std::move(state)),
        measured_(state_->groups.emplace_back(State::Group{this->group(), {}})) {}

 protected:
  void before(CollectiveCall const& /*call*/) override { state_->enter(); }
  void after(CollectiveCall const& call) noexcept override { state_->leave(measured_, State::Call::of(call)); }
  std::unique_ptr<TransferBackend> around(CollectiveCall const& call,
                                          std::unique_ptr<TransferBackend> transfer) override {
    return std::make_unique<MeasuredTransfer>(std::move(transfer), state_, measured_,
                                              State::Call::of(call, WorkKind::waiting));
  }
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                NamedGroup group) override {
    return std::make_shared<MeasuredBackend>(std::move(part), std::move(group), state_);
  }

 private:
  std::shared_ptr<State> state_;
  State::Group& measured_;
};

}  // namespace

StepTimes::StepTimes(StepTrace* trace) : state_(std::make_shared<State>()) {
  state_->trace = trace;
}

std::shared_ptr<CommunicatorBackend> StepTimes::measured(std::shared_ptr<CommunicatorBackend> world) const {
  return decorated<MeasuredBackend>(std::move(world), state_);
}

void StepTimes::begin(Work const& work) {
  State& state = *state_;
  std::int64_t const now = StepTrace::now();
  open_.push_back({work, now, state.seconds.communicating});
  if (work.kind == WorkKind::waiting) {
    state.enter();
  } else if (work.kind != WorkKind::data && state.trace != nullptr) {
    state.trace->begin(work, now);
  }
  if (work.kind == WorkKind::step) {
    state.in_step = true;
    state.depth = 0;
  }
}

void StepTimes::end() noexcept {
  State& state = *state_;
  auto const [work, began, communicated] = open_.back();
  open_.pop_back();
  std::int64_t const now = StepTrace::now();
  double const passed = nanosecond * static_cast<double>(now - began);
  if (work.kind == WorkKind::waiting) {
    std::size_t const dot = work.name.find('.');
    state.leave(state.group_named(work.name.substr(0, dot)),
                {.collective = collective_named(work.name.substr(dot + 1)), .kind = WorkKind::waiting});
    return;
  }
  if (work.kind == WorkKind::data) {
    state.seconds.data += passed - (state.seconds.communicating - communicated);
    if (state.traces()) {
      state.trace->add({.begin = began, .end = now, .kind = work.kind}, work.name, "");
    }
    return;
  }
  if (work.kind == WorkKind::step) {
    state.in_step = false;
    state.seconds.all += passed;
    state.seconds.first = state.seconds.steps++ == 0 ? passed : state.seconds.first;
  }
  if (state.trace != nullptr) {
    state.trace->end(now);
  }
}

StepTimes::Seconds StepTimes::seconds() const {
  return state_->seconds;
}

std::map<std::string, double> StepTimes::by_collective() const {
  std::map<std::string, double> result;
  for (State::Group const& group : state_->groups) {
    for (std::size_t collective = 0; collective < collectives; ++collective) {
      if (group.nanoseconds[collective] > 0) {
        result[fmt::format("{}.{}", group.group.name, name_of(static_cast<CollectiveOp>(collective)))] +=
            nanosecond * static_cast<double>(group.nanoseconds[collective]);
      }
    }
  }
  return result;
}

Efficiency efficiency_of(std::vector<StepTimes::Seconds> const& ranks) {
  auto const count = static_cast<double>(ranks.size());
  auto const sum = [&](auto const& of) {
    return std::accumulate(ranks.begin(), ranks.end(), 0.0,
                           [&](double total, StepTimes::Seconds const& rank) { return total + of(rank); });
  };
  double const mean = sum([](StepTimes::Seconds const& rank) { return rank.computing(); }) / count;
  double max = 0;
  double all = 0;
  for (StepTimes::Seconds const& rank : ranks) {
    max = std::max(max, rank.computing());
    all = std::max(all, rank.all);
  }
  auto const min = std::ranges::min_element(ranks, {}, &StepTimes::Seconds::communicating);
  Efficiency result{.load_balance = mean / max,
                    .communication = max / all,
                    .parallel = mean / all,
                    .slowest = static_cast<int>(min - ranks.begin())};
  if (ranks.size() > 1) {
    double const others = sum([](StepTimes::Seconds const& rank) { return rank.communicating; }) - min->communicating;
    result.waited_less = others / (count - 1) - min->communicating;
  }
  return result;
}

}  // namespace heddle
