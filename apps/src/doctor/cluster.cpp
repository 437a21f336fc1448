#include "cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iterator>
#include <optional>
#include <thread>

#include "cluster_findings.hpp"
#include "host_facts.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// The ranks of a job by their hosts.
struct Hosts {
  explicit Hosts(Communicator const& world) : of_rank(gather_texts(world, host_name())) {
    for (std::string const& host : of_rank) {
      if (std::ranges::find(names, host) == names.end()) {
        names.push_back(host);
      }
    }
    std::string const& own = of_rank[static_cast<std::size_t>(world.rank())];
    auto const before = of_rank.begin() + world.rank();
    place = static_cast<int>(std::count(of_rank.begin(), before, own));
    number = static_cast<int>(std::ranges::find(names, own) - names.begin());
  }

  std::vector<std::string> of_rank;
  std::vector<std::string> names;  ///< in the order of their first ranks, which lead them
  int place = 0;                   ///< this rank among those of its host
  int number = 0;                  ///< its host
};

struct PairSeconds {
  double latency = 0;
  double bandwidth = 0;  ///< 0: not measured
};

/// The median seconds of half a round trip of a message between two ranks; both call it.
double median_seconds(Communicator const& group, int partner, bool first, std::vector<float>& values, int repetitions) {
  Tensor const tensor =
      Tensor::borrow(values.data(), DType::float32, {static_cast<std::int64_t>(values.size())}, MemorySpace::host);
  std::vector<double> seconds;
  for (int repetition = 0; repetition <= repetitions; ++repetition) {
    auto const began = SteadyClock::now();
    if (first) {
      group.send(tensor, partner);
      group.receive(tensor, partner);
    } else {
      group.receive(tensor, partner);
      group.send(tensor, partner);
    }
    seconds.push_back(seconds_since(began) / 2);
  }
  seconds.erase(seconds.begin());  // the first connects
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

PairSeconds time_pair(Communicator const& group, int partner, bool first) {
  constexpr std::size_t large = std::size_t{1} << 21;
  std::vector<float> values(16);
  double const latency = median_seconds(group, partner, first, values, 201);
  values.resize(large);
  double const seconds = median_seconds(group, partner, first, values, 9);
  return {latency, static_cast<double>(large * sizeof(float)) / seconds};
}

/// Each rank's time with the next one of the group, as on a ring: pairs that share no rank at the same time.
std::vector<PairSeconds> time_ring(Communicator const& group) {
  PairSeconds own;
  int const ranks = group.size();
  int const pairs = ranks == 2 ? 1 : ranks;
  auto const round_of = [&](int pair) { return pair == ranks - 1 && ranks % 2 == 1 ? 2 : pair % 2; };
  for (int round = 0; round < 3 && ranks > 1; ++round) {
    group.barrier();
    int const before = (group.rank() + ranks - 1) % ranks;
    if (group.rank() < pairs && round_of(group.rank()) == round) {
      own = time_pair(group, (group.rank() + 1) % ranks, true);
    } else if (before < pairs && round_of(before) == round) {
      time_pair(group, before, false);
    }
  }
  return gather_values(group, own);
}

std::vector<PairTime> named(std::vector<PairSeconds> const& seconds, std::vector<std::string> const& hosts) {
  std::vector<PairTime> pairs;
  for (std::size_t first = 0; first < seconds.size(); ++first) {
    if (seconds[first].bandwidth > 0) {
      pairs.push_back({fmt::format("{} - {}", hosts[first], hosts[(first + 1) % hosts.size()]), seconds[first].latency,
                       seconds[first].bandwidth});
    }
  }
  return pairs;
}

fs::path file_of(fs::path const& directory, std::string const& host) {
  return directory / fmt::format(".heddle-doctor-{}", host);
}

/// Writes this host's file. Returns why it cannot, or "".
std::string write_file(fs::path const& path, double& seconds) {
  constexpr std::size_t bytes = std::size_t{16} << 20;
  try {
    std::string const content(bytes, 'x');
    auto const began = SteadyClock::now();
    replace_file(path, content);
    seconds = seconds_since(began);
    return "";
  } catch (std::exception const& error) {
    return error.what();
  }
}

/// The hosts whose files are not seen here, also after a network file system's usual time for caching names.
std::vector<std::string> unseen_files(fs::path const& directory, std::vector<std::string> hosts) {
  constexpr int looks = 50;
  for (int look = 0; look < looks && !hosts.empty(); ++look) {
    std::erase_if(hosts, [&](std::string const& host) {
      std::error_code problem;
      return fs::exists(file_of(directory, host), problem);
    });
    if (!hosts.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  return hosts;
}

/// Tries to take a lock; nothing where that fails.
std::optional<FileLock::Result> try_to_take(std::optional<FileLock>& lock, fs::path const& path) {
  try {
    return lock.emplace(path).try_take(FileLock::Kind::exclusive);
  } catch (Error const&) {
    return std::nullopt;
  }
}

/// Lets each rank of the group try a lock in the directory while the first one holds it. Returns the results: [rank].
std::vector<HostFiles::Lock> try_lock(Communicator const& group, fs::path const& directory) {
  using Lock = HostFiles::Lock;
  fs::path const path = directory / ".heddle-doctor-lock";
  std::optional<FileLock> lock;
  std::optional<FileLock::Result> own;
  if (group.rank() == 0) {
    own = try_to_take(lock, path);
  }
  bool const held = broadcast_value(group, own == FileLock::Result::taken);
  if (held && group.rank() > 0) {
    own = try_to_take(lock, path);
  }
  Lock const found = own == FileLock::Result::not_supported ? Lock::not_supported
                     : !own || group.rank() == 0            ? Lock::unknown
                     : own == FileLock::Result::busy        ? Lock::excluded
                                                            : Lock::taken;
  auto const all = gather_values(group, found);  // until then the first one holds it
  if (group.rank() == 0) {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  return all;
}

/// Lets each host write in the directory, and look for the files of the others. Returns the results by the hosts'
/// names. Collective over the ranks that lead them.
std::map<std::string, HostFiles> examine_files(Communicator const& leaders, Hosts const& hosts,
                                               fs::path const& directory) {
  std::string const& own = hosts.names[static_cast<std::size_t>(leaders.rank())];
  double seconds = 0;
  std::vector<std::string> const problems = gather_texts(leaders, write_file(file_of(directory, own), seconds));
  std::vector<double> const times = gather_values(leaders, seconds);
  std::vector<std::string> written;
  for (std::size_t host = 0; host < problems.size(); ++host) {
    if (problems[host].empty()) {
      written.push_back(hosts.names[host]);
    }
  }
  std::vector<std::string> const unseen =
      gather_texts(leaders, fmt::format("{}", fmt::join(unseen_files(directory, written), "\n")));
  std::error_code ignored;
  fs::remove(file_of(directory, own), ignored);
  std::map<std::string, HostFiles> found;
  for (std::size_t host = 0; host < problems.size(); ++host) {
    HostFiles& files = found[hosts.names[host]];
    files.problem = problems[host];
    files.seconds = times[host];
    if (!unseen[host].empty()) {
      files.unseen.push_back(unseen[host]);
      std::ranges::replace(files.unseen.back(), '\n', ' ');
    }
  }
  return found;
}

std::int64_t nanoseconds_of_day() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

json::object to_json(std::vector<Finding> const& findings) {
  json::array list;
  for (Finding const& finding : findings) {
    list.push_back(json::array{static_cast<int>(finding.kind), finding.subject, finding.found, finding.fix});
  }
  return {{"findings", std::move(list)}};
}

std::vector<Finding> findings_of(json::object const& object) {
  std::vector<Finding> findings;
  for (json::value const& each : object.at("findings").as_array()) {
    auto const text = [&](std::size_t index) { return std::string(each.at(index).as_string()); };
    findings.push_back({static_cast<Finding::Kind>(each.at(0).as_int64()), text(1), text(2), text(3)});
  }
  return findings;
}

/// The cores of this host; none where hwloc cannot tell them, which the examination of the host alone reports.
NodeTopology own_topology() try { return node_topology(); } catch (Error const&) {
  return {};
}

/// Examines each host alone, and then all together. Collective over the ranks that lead them, with one result.
std::vector<Finding> examine_hosts(Communicator const& leaders, Hosts const& hosts, fs::path const& directory,
                                   std::vector<HostFiles::Lock> const& locks) {
  std::vector<Finding> alone = examine({.directory = directory});
  std::erase_if(alone, [](Finding const& finding) { return finding.subject == "files"; });  // examined together below
  json::object own = to_json(alone);
  own["facts"] = json::value_from(own_facts());
  std::map<std::string, HostFacts> facts;
  std::map<std::string, std::vector<Finding>> local;
  std::vector<std::string> const texts = gather_texts(leaders, json::serialize(own));
  for (std::size_t host = 0; host < texts.size(); ++host) {
    json::object const parsed = json::parse(texts[host]).as_object();
    facts[hosts.names[host]] = json::value_to<HostFacts>(parsed.at("facts"));
    local[hosts.names[host]] = findings_of(parsed);
  }
  std::vector<Finding> findings = differences_of(facts);
  std::ranges::move(merged(local), std::back_inserter(findings));
  if (leaders.size() > 1) {
    findings.push_back(network_of("network", named(time_ring(leaders), hosts.names)));
  }
  std::map<std::string, double> ahead;
  auto const offsets = gather_values(leaders, 1e-9 * static_cast<double>(clock_offset(leaders, nanoseconds_of_day)));
  for (std::size_t host = 0; host < offsets.size(); ++host) {
    ahead[hosts.names[host]] = offsets[host];
  }
  findings.push_back(clocks_of(ahead));
  std::map<std::string, HostFiles> files = examine_files(leaders, hosts, directory);
  for (std::size_t host = 0; host < locks.size(); ++host) {
    files[hosts.names[host]].lock = locks[host];
  }
  std::ranges::move(files_of(fs::absolute(directory).lexically_normal().string(), files), std::back_inserter(findings));
  return findings;
}

}  // namespace

ClusterExamination examine_cluster(Communicator const& world, std::filesystem::path const& directory) {
  Hosts const hosts(world);
  std::vector<RankCores> const places = gather_rank_cores(world, hosts.of_rank);
  Communicator const node = world.split(hosts.number, world.rank(), "ranks of a host");
  Communicator const leaders = world.split(hosts.place, world.rank(), "one rank of each host");
  // Inside a host the ring of its first two ranks is one pair; all hosts measure theirs at the same time.
  Communicator const pair = node.split(node.rank() < 2 ? 0 : 1, node.rank(), "two ranks of a host");
  PairSeconds const inside = node.rank() < 2 && node.size() > 1 ? time_ring(pair).front() : PairSeconds();
  // A lock is tried by the first rank of each host, and where there is one host by its second one.
  std::vector<HostFiles::Lock> locks;
  if (hosts.names.size() > 1 ? hosts.place == 0 : node.rank() < 2) {
    locks = try_lock(hosts.names.size() > 1 ? leaders : pair, directory);
  }
  if (hosts.names.size() == 1 && !locks.empty()) {
    locks = {locks.back()};
  }
  json::object report;
  if (hosts.place == 0) {
    std::vector<PairTime> times;
    auto const seconds = gather_values(leaders, inside);
    for (std::size_t host = 0; host < seconds.size(); ++host) {
      if (seconds[host].bandwidth > 0) {
        times.push_back({"inside " + hosts.names[host], seconds[host].latency, seconds[host].bandwidth});
      }
    }
    std::vector<Finding> findings{binding_of(places, own_topology()), network_of("inside hosts", times)};
    std::ranges::move(examine_hosts(leaders, hosts, directory, locks), std::back_inserter(findings));
    report = to_json(findings);
  }
  world.barrier();
  std::string const text = broadcast_text(world, json::serialize(report));
  return {describe_ranks(places), findings_of(json::parse(text).as_object())};
}

}  // namespace heddle
