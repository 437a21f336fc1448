#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "activity.hpp"

namespace heddle {

/// A rank's knowledge about the progress of the others, from their answers to its questions, and the conclusion from
/// it. Has no clock: `now` is the caller's, in seconds in which it was not stopped itself.
///
/// A rank that has had no event for a tenth of the limit starts to ask all others, twenty times in the limit; a rank
/// with a higher number waits for up to as long again. All ranks may start to wait at once: then the first one has
/// asked before others would, and n ranks do not send n² questions. The run hangs if for the whole limit no rank had an
/// event, and each rank has either answered recently or was asked for the whole limit without an answer. Silence counts
/// only for ranks that can be heard.
class Inquiry {
 public:
  enum class Action : std::uint8_t { none, ask, report };

  Inquiry(double limit_seconds, int ranks, int own);

  /// Whether the silence of a rank is evidence of a hang; at first true of all.
  void set_reachable(int rank, bool reachable) { reachable_[static_cast<std::size_t>(rank)] = reachable; }
  bool reaches_all() const;
  void answered(int rank, RankStatus const& status, double now);
  /// To be done now, if this rank's own state is `status`. After `report` the caller does not ask again.
  Action next(RankStatus const& status, double now);
  /// Whether this rank asks the others at present.
  bool is_open() const { return open_since_.has_value(); }
  /// Ends the questions; what was learnt of the ranks' progress stays.
  void close() { open_since_.reset(); }

  /// The states of the ranks, nothing for those that do not answer.
  std::vector<std::optional<RankStatus>> const& statuses() const { return statuses_; }

 private:
  double patience() const { return limit_ / 10 * (1 + static_cast<double>(own_) / static_cast<double>(heard_.size())); }
  double question_interval() const { return limit_ / 20; }
  double fresh_for() const { return limit_ / 4; }
  /// Whether none of the ranks can still show progress that is not known here.
  bool all_known(double now) const;
  /// Whether all ranks have answered, from the end of their work.
  bool all_finish() const;

  double limit_;
  std::size_t own_;
  std::vector<bool> reachable_;
  std::vector<std::optional<RankStatus>> statuses_;  ///< since the questions started
  std::vector<double> heard_;                        ///< when; of a rank without status: when it was asked first
  std::optional<double> open_since_;
  double next_question_ = 0;
  double last_progress_ = 0;  ///< of any rank, as far as it is known
};

/// The message that names the ranks that are missing in a collective, since when, and where the others wait: a line for
/// all ranks of a host with the same state. `hosts` and `statuses` have an entry for each rank.
std::string hang_report(double limit_seconds, std::vector<std::string> const& hosts,
                        std::vector<std::optional<RankStatus>> const& statuses);

}  // namespace heddle
