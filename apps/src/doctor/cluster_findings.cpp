#include "cluster_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/lexical_cast.hpp>
#include <cmath>
#include <heddle/core/base/readable.hpp>
#include <iterator>
#include <set>
#include <utility>

namespace heddle {

namespace {

using Kind = Finding::Kind;

/// "n1, n2, n3 and 5 more".
std::string describe_names(std::vector<std::string> const& names) {
  constexpr std::size_t max_names = 4;
  if (names.size() <= max_names) {
    return fmt::format("{}", fmt::join(names, ", "));
  }
  std::vector<std::string> const first(names.begin(), names.begin() + max_names - 1);
  return fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - first.size());
}

template <class Value>
double median(std::vector<PairTime> const& pairs, Value PairTime::*member) {
  std::vector<double> values;
  std::ranges::transform(pairs, std::back_inserter(values), member);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The two values of a fact are one: sizes of memory differ a little between equal hosts.
bool same_fact(std::string const& name, std::string const& one, std::string const& other) {
  constexpr double tolerance = 0.02;
  double a = 0;
  double b = 0;
  bool const numbers = name == "memory" && boost::conversion::try_lexical_convert(one.substr(0, one.find(' ')), a) &&
                       boost::conversion::try_lexical_convert(other.substr(0, other.find(' ')), b);
  return numbers ? std::abs(a - b) <= tolerance * std::max(a, b) : one == other;
}

/// The finding about a fact with several values, by which `values` groups the hosts.
Finding difference_of(std::string const& name,
                      std::vector<std::pair<std::string, std::vector<std::string>>> const& values) {
  std::vector<std::string> parts;
  for (auto const& [value, hosts] : values) {
    parts.push_back(fmt::format("{} on {}", value.empty() ? "not there" : value, describe_names(hosts)));
  }
  bool const program =
      name == "heddle" || name == "executable" || name == "MPI" || name.starts_with("library libheddle");
  std::string const fix = program ? "start one installation on all hosts"
                          : name == "kernels"
                              ? "ranks agree on the lowest level; ask for equal nodes to use the higher one"
                              : "ask for equal nodes, or set the same on all";
  return {.kind = program ? Kind::failed : Kind::warning,
          .subject = name.substr(0, name.find(' ')),
          .found = fmt::format("{} differs: {}", name, fmt::join(parts, "; ")),
          .fix = fix};
}

}  // namespace

std::string describe_cores(std::vector<int> const& cores) {
  std::string text;
  for (std::size_t begin = 0; begin < cores.size();) {
    std::size_t end = begin + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) {
      ++end;
    }
    text += text.empty() ? "" : ",";
    text += end - begin > 1 ? fmt::format("{}-{}", cores[begin], cores[end - 1]) : fmt::format("{}", cores[begin]);
    begin = end;
  }
  return text;
}

std::string describe_ranks(std::vector<RankCores> const& ranks) {
  constexpr std::size_t max_lines = 64;
  std::string text;
  for (std::size_t rank = 0; rank < std::min(ranks.size(), max_lines); ++rank) {
    text += fmt::format("rank {:<5} {:<16} cores {}\n", rank, ranks[rank].host, describe_cores(ranks[rank].cores));
  }
  return text + (ranks.size() > max_lines ? fmt::format("… and {} more ranks\n", ranks.size() - max_lines) : "");
}

Finding binding_of(std::vector<RankCores> const& ranks, NodeTopology const& node) {
  std::vector<std::string> sharing;
  for (SharedCores const& shared : shared_cores(ranks, node)) {
    if (shared.cores.size() < shared.ranks) {
      return {Kind::failed, "binding",
              fmt::format("{} ranks on {} have {} cores together ({})", shared.ranks, shared.host, shared.cores.size(),
                          describe_cores(shared.cores)),
              "let the launcher bind each rank to cores of its own: srun --cpu-bind=cores, mpirun --bind-to core; two "
              "jobs on one host may have been bound to the same cores"};
    }
    if (sharing.empty() || sharing.back() != shared.host) {
      sharing.push_back(shared.host);
    }
  }
  std::string const found = !sharing.empty() ? fmt::format("ranks share cores on {}: each may run on those of others",
                                                           describe_names(sharing))
                                             : scattered_ranks(ranks, node);
  if (!found.empty()) {
    return {Kind::warning, "binding", found,
            "bind them side by side: srun --cpu-bind=cores --distribution=block:block, mpirun --map-by "
            "ppr:RANKS:node:pe=1 --bind-to core (heddle plan prints the whole line)"};
  }
  std::set<std::string> hosts;
  std::ranges::transform(ranks, std::inserter(hosts, hosts.end()), &RankCores::host);
  return {.subject = "binding",
          .found = fmt::format("{} on {}, none shares a core with another", counted(ranks.size(), "rank"),
                               hosts.size() == 1 ? "one host" : fmt::format("{} hosts", hosts.size()))};
}

std::vector<Finding> differences_of(std::map<std::string, HostFacts> const& facts) {
  std::set<std::string> names;
  for (auto const& [host, of_host] : facts) {
    for (auto const& [name, value] : of_host) {
      names.insert(name);
    }
  }
  std::vector<Finding> findings;
  for (std::string const& name : names) {
    std::vector<std::pair<std::string, std::vector<std::string>>> values;
    for (auto const& [host, of_host] : facts) {
      auto const fact = of_host.find(name);
      std::string const value = fact == of_host.end() ? "" : fact->second;
      auto const known =
          std::ranges::find_if(values, [&](auto const& each) { return same_fact(name, each.first, value); });
      known == values.end() ? values.push_back({value, {host}}) : known->second.push_back(host);
    }
    if (values.size() > 1) {
      findings.push_back(difference_of(name, values));
    }
  }
  if (findings.empty()) {
    findings.push_back(
        {.subject = "hosts",
         .found = fmt::format("{} with the same processor, program, libraries, limits, memory and settings",
                              facts.size() == 1 ? "one" : std::to_string(facts.size()))});
  }
  return findings;
}

std::vector<Finding> merged(std::map<std::string, std::vector<Finding>> const& findings) {
  std::vector<std::pair<Finding, std::vector<std::string>>> all;
  for (auto const& [host, of_host] : findings) {
    for (Finding const& finding : of_host) {
      if (finding.kind != Kind::failed && finding.kind != Kind::warning) {
        continue;
      }
      auto const known = std::ranges::find_if(all, [&](auto const& each) {
        return each.first.subject == finding.subject && each.first.found == finding.found;
      });
      known == all.end() ? all.push_back({finding, {host}}) : known->second.push_back(host);
    }
  }
  std::vector<Finding> result;
  for (auto& [finding, hosts] : all) {
    finding.found = fmt::format("on {}: {}", describe_names(hosts), finding.found);
    result.push_back(std::move(finding));
  }
  return result;
}

Finding network_of(std::string const& subject, std::vector<PairTime> const& pairs) {
  auto const describe = [](PairTime const& pair) {
    return fmt::format("{}: {} us, {} GB/s", pair.pair, readable_decimal(1e6 * pair.latency, 1),
                       readable_decimal(1e-9 * pair.bandwidth, 2));
  };
  if (pairs.empty()) {
    return {.kind = Kind::unknown, .subject = subject, .found = "there is no pair of ranks to measure"};
  }
  PairTime const typical{fmt::format("{} pairs, median", pairs.size()), median(pairs, &PairTime::latency),
                         median(pairs, &PairTime::bandwidth)};
  PairTime const& slow = *std::ranges::min_element(pairs, {}, &PairTime::bandwidth);
  PairTime const& late = *std::ranges::max_element(pairs, {}, &PairTime::latency);
  std::string const found =
      pairs.size() == 1 ? describe(pairs.front()) : fmt::format("{}; slowest {}", describe(typical), describe(slow));
  if (slow.bandwidth < typical.bandwidth / 2) {
    return {Kind::warning, subject, found, "leave these hosts out, or let the site look at their links"};
  }
  if (late.latency > 3 * typical.latency) {
    return {Kind::warning, subject, fmt::format("{}; latest {}", found, describe(late)),
            "leave these hosts out, or let the site look at their links"};
  }
  return {.subject = subject, .found = found};
}

Finding clocks_of(std::map<std::string, double> const& ahead) {
  constexpr double max_seconds = 0.5;
  auto const [min, max] = std::ranges::minmax_element(ahead, {}, [](auto const& each) { return each.second; });
  double const difference = max->second - min->second;
  std::string const found = ahead.size() == 1 ? "one host"
                                              : fmt::format("{} s between {} and {}", readable_decimal(difference, 6),
                                                            min->first, max->first);
  return difference > max_seconds
             ? Finding{Kind::warning, "clock", found, "times in logs do not compare: let the site synchronise clocks"}
             : Finding{.subject = "clock", .found = found};
}

std::vector<Finding> files_of(std::string const& directory, std::map<std::string, HostFiles> const& files) {
  std::vector<std::string> refused;
  std::string reason;
  std::vector<std::string> blind;
  std::map<HostFiles::Lock, std::vector<std::string>> locks;
  double slowest = 0;
  for (auto const& [host, found] : files) {
    if (!found.problem.empty()) {
      refused.push_back(host);
      reason = found.problem;
    } else if (!found.unseen.empty()) {
      blind.push_back(fmt::format("{} does not see what {} wrote", host, describe_names(found.unseen)));
    }
    slowest = std::max(slowest, found.seconds);
    locks[found.lock].push_back(host);
  }
  if (!refused.empty()) {
    return {{Kind::failed, "files", fmt::format("on {}: {}", describe_names(refused), reason),
             "start runs in a directory that every host can write (run.directory)"}};
  }
  if (!blind.empty()) {
    return {{Kind::failed, "files", fmt::format("{}: {}", directory, describe_names(blind)),
             "start runs in a directory that all hosts share (run.directory)"}};
  }
  constexpr double mebibytes = 16;
  Finding const written{
      .subject = "files",
      .found = fmt::format("{} is seen by all hosts; the slowest writes, syncs and renames {} MiB in {} s", directory,
                           mebibytes, readable_decimal(slowest, 3))};
  if (auto const both = locks.find(HostFiles::Lock::taken); both != locks.end()) {
    return {
        written,
        {Kind::failed, "locks", fmt::format("{} takes a lock that another host holds", describe_names(both->second)),
         "mount with locks for all hosts (NFS: without nolock or local_lock; Lustre: with flock)"}};
  }
  if (locks.contains(HostFiles::Lock::not_supported)) {
    return {written,
            {Kind::warning, "locks", fmt::format("{} has no locks", directory),
             "runs keep each other out by a lease there, which takes 20 s at the start; mount with locks (flock)"}};
  }
  return {written, locks.contains(HostFiles::Lock::excluded)
                       ? Finding{.subject = "locks", .found = "a lock that a process holds excludes the others"}
                       : Finding{.kind = Kind::unknown, .subject = "locks", .found = "needs a second rank"}};
}

}  // namespace heddle
