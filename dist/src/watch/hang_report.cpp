#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "inquiry.hpp"

namespace heddle {

namespace {

using Statuses = std::vector<std::optional<RankStatus>>;

/// A collective in which at least one rank waits.
struct Place {
  std::uint64_t group = 0;
  std::int64_t sequence = 0;
  int peer = -1;  ///< for a message, the rank that is waited for
  std::string name;

  auto operator<=>(Place const&) const = default;
};

/// "tensor.all_reduce 813"
std::string name_of(RankStatus const& status) {
  return fmt::format("{}.{} {}", status.group_name.data(), status.collective.data(), status.sequence);
}

std::string list_of(std::vector<int> const& ranks) {
  constexpr std::size_t shown = 16;
  auto const end = ranks.begin() + static_cast<std::ptrdiff_t>(std::min(shown, ranks.size()));
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks.begin(), end, ", "),
                     ranks.size() > shown ? fmt::format(", … {} in all", ranks.size()) : "");
}

/// Where ranks wait, with the members of the group as far as the statuses list them.
std::map<Place, std::set<int>> waiting_places(Statuses const& statuses) {
  std::map<Place, std::set<int>> places;
  for (auto const& status : statuses) {
    if (status && status->waits) {
      Place const place{status->group, status->sequence, status->peer, name_of(*status)};
      auto const listed = std::min(static_cast<std::size_t>(status->members), RankStatus::max_members);
      places[place].insert(status->member.begin(), status->member.begin() + static_cast<std::ptrdiff_t>(listed));
    }
  }
  return places;
}

/// The collectives that others have entered and this rank has not.
std::string missing_in(std::map<Place, std::set<int>> const& places, Statuses const& statuses, int rank) {
  auto const& status = statuses[static_cast<std::size_t>(rank)];
  std::vector<std::string> names;
  for (auto const& [place, members] : places) {
    bool missing = place.peer == rank;
    if (place.peer < 0 && status) {
      auto const groups = std::span(status->entered).first(static_cast<std::size_t>(status->groups));
      missing = std::ranges::any_of(groups, [&place = place](RankStatus::Entered const& entered) {
        return entered.group == place.group && entered.collectives < place.sequence;
      });
    } else if (place.peer < 0) {
      missing = members.contains(rank);
    }
    if (missing) {
      names.push_back(place.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string phase_of(RankStatus const& status) {
  return status.step > 0 ? fmt::format("{} {}", status.phase.data(), status.step) : status.phase.data();
}

std::string describe(Statuses const& statuses, std::map<Place, std::set<int>> const& places, int rank) {
  auto const& status = statuses[static_cast<std::size_t>(rank)];
  std::string const missing = missing_in(places, statuses, rank);
  std::string const also = missing.empty() ? "" : "; missing in " + missing;
  if (!status) {
    return "no answer (stopped, dead or cut off)" + also;
  }
  if (status->waits) {
    std::string const whom = status->peer >= 0 ? fmt::format(" with rank {}", status->peer) : "";
    std::string const size =
        status->elements > 0 ? fmt::format(" ({} elements)", readable_count(status->elements)) : "";
    return fmt::format("waiting in {}{}{} while {}{}", name_of(*status), whom, size, phase_of(*status), also);
  }
  std::string const last =
      status->collective.front() == '\0' ? "in no collective yet" : fmt::format("last in {}", name_of(*status));
  return fmt::format("{}, {}{}", phase_of(*status), last, also);
}

/// The ranks that are in one collective with different collectives.
std::string disagreements(Statuses const& statuses) {
  std::map<std::pair<std::uint64_t, std::int64_t>, std::map<std::string, std::vector<int>>> collectives;
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    auto const& status = statuses[rank];
    if (status && status->waits && status->peer < 0) {
      collectives[{status->group, status->sequence}][name_of(*status)].push_back(static_cast<int>(rank));
    }
  }
  std::string text;
  for (auto const& [place, callers] : collectives) {
    if (callers.size() > 1) {
      std::vector<std::string> calls;
      for (auto const& [name, ranks] : callers) {
        calls.push_back(fmt::format("{} {} {}", list_of(ranks), ranks.size() == 1 ? "calls" : "call", name));
      }
      text += fmt::format("  different calls in one place: {}\n", fmt::join(calls, "; "));
    }
  }
  return text;
}

}  // namespace

std::string hang_report(double limit_seconds, std::vector<std::string> const& hosts, Statuses const& statuses) {
  auto const places = waiting_places(statuses);
  struct Line {
    std::vector<int> ranks;
    double seconds = 0;
  };
  // Ranks that do not answer first, then those in no collective, then those that wait.
  std::map<std::tuple<int, std::string, std::string>, Line> lines;
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    auto const& status = statuses[rank];
    int const order = !status ? 0 : status->waits ? 2 : 1;
    Line& line = lines[{order, hosts[rank], describe(statuses, places, static_cast<int>(rank))}];
    line.ranks.push_back(static_cast<int>(rank));
    line.seconds = std::max(line.seconds, status ? status->idle_seconds : 0);
  }
  std::string text = fmt::format(
      "no rank has made progress for {} s (train.hang_seconds): this process ends with code 86, the same command "
      "resumes from the newest checkpoint\n",
      limit_seconds);
  constexpr std::size_t max_lines = 40;
  std::size_t shown = 0;
  for (auto const& [key, line] : lines) {
    if (++shown > max_lines) {
      text += fmt::format("  and {} more lines of ranks\n", lines.size() - max_lines);
      break;
    }
    auto const& [order, host, state] = key;
    text += fmt::format("  {} on {}: {}{}\n", list_of(line.ranks), host, state,
                        order == 0 ? "" : fmt::format("; for {:.1f} s", line.seconds));
  }
  return text + disagreements(statuses);
}

}  // namespace heddle
