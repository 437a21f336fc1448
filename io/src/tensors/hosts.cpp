#include "hosts.hpp"

#include <algorithm>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <map>

namespace heddle {

Hosts Hosts::gather(Communicator const& world) {
  Hosts hosts;
  hosts.rank = world.rank();
  std::map<std::uint64_t, std::size_t> numbers;
  int rank = 0;
  for (std::uint64_t const key : gather_values(world, random_key(0, host_name()))) {
    std::size_t const host = numbers.try_emplace(key, numbers.size()).first->second;
    hosts.ranks.resize(numbers.size());
    hosts.ranks[host].push_back(rank++);
    hosts.host_of.push_back(host);
  }
  return hosts;
}

std::vector<int> Hosts::writers(std::int64_t wanted, int max_on_host) const {
  std::vector<int> chosen;
  auto const choose = [&](std::size_t ranks_there, std::int64_t max, auto const& rank_at) {
    std::size_t const count = std::min(ranks_there, static_cast<std::size_t>(max));
    for (std::size_t writer = 0; writer < count; ++writer) {
      chosen.push_back(rank_at(writer * ranks_there / count));
    }
  };
  if (wanted > 0) {
    choose(host_of.size(), wanted, [](std::size_t place) { return static_cast<int>(place); });
    return chosen;
  }
  for (std::vector<int> const& there : ranks) {
    choose(there.size(), max_on_host, [&](std::size_t place) { return there[place]; });
  }
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace heddle
