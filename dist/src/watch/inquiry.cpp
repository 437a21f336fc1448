#include "inquiry.hpp"

#include <algorithm>

namespace heddle {

Inquiry::Inquiry(double limit_seconds, int ranks, int own)
    : limit_(limit_seconds),
      own_(static_cast<std::size_t>(own)),
      reachable_(static_cast<std::size_t>(ranks), true),
      statuses_(reachable_.size()),
      heard_(reachable_.size(), 0.0) {}

bool Inquiry::reaches_all() const {
  return std::ranges::all_of(reachable_, [](bool reachable) { return reachable; });
}

void Inquiry::answered(int rank, RankStatus const& status, double now) {
  auto const index = static_cast<std::size_t>(rank);
  reachable_[index] = true;
  statuses_[index] = status;
  heard_[index] = now;
  last_progress_ = std::max(last_progress_, now - status.idle_seconds);
}

Inquiry::Action Inquiry::next(RankStatus const& status, double now) {
  last_progress_ = std::max(last_progress_, now - status.idle_seconds);
  double const quiet = now - last_progress_;
  if (quiet < patience()) {
    close();
    return Action::none;
  }
  if (!open_since_) {
    open_since_ = now;
    next_question_ = now;
    std::ranges::fill(statuses_, std::nullopt);
    std::ranges::fill(heard_, now);
  }
  statuses_[own_] = status;
  heard_[own_] = now;
  if (quiet >= limit_ && all_known(now) && !all_finish()) {
    for (std::size_t rank = 0; rank < statuses_.size(); ++rank) {
      statuses_[rank] = now - heard_[rank] > fresh_for() ? std::nullopt : statuses_[rank];
    }
    return Action::report;
  }
  if (now < next_question_) {
    return Action::none;
  }
  next_question_ = now + question_interval();
  return Action::ask;
}

bool Inquiry::all_known(double now) const {
  for (std::size_t rank = 0; rank < statuses_.size(); ++rank) {
    double const since = now - heard_[rank];
    bool const fresh = statuses_[rank] && since <= fresh_for();
    bool const silent = reachable_[rank] && since >= limit_;
    if (!fresh && !silent) {
      return false;
    }
  }
  return true;
}

bool Inquiry::all_finish() const {
  return std::ranges::all_of(statuses_, [](auto const& status) { return status && status->finishes; });
}

}  // namespace heddle
