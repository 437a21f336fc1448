#include "hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <numeric>
#include <sstream>
#include <utility>

namespace heddle {

namespace {

/// 0 if the text is not a positive number.
int positive_number(std::string_view text) {
  return std::max(parse_number<int>(text).value_or(0), 0);
}

}  // namespace

std::vector<int> parse_ranks(std::string const& text) {
  std::vector<int> ranks;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    ranks.push_back(positive_number(word));
  }
  if (ranks.empty() || std::ranges::min(ranks) < 1 || text.ends_with(',')) {
    throw UsageError("--ranks \"{}\" is not a list of numbers; expected for example 8,6,4", text);
  }
  return ranks;
}

std::vector<Host> parse_hosts(std::string const& text) {
  std::vector<Host> hosts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    auto const colon = word.find(':');
    Host host{word.substr(0, colon), 1};
    if (colon != std::string::npos) {
      host.slots = positive_number(std::string_view(word).substr(colon + 1));
    }
    if (host.name.empty() || host.slots < 1) {
      throw UsageError("--hosts \"{}\" is not a list of hosts; expected for example n1:4,n2:4", text);
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::string to_string(std::vector<Host> const& hosts) {
  std::string text;
  for (Host const& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  }
  return text;
}

int slots_of(std::vector<Host> const& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, Host const& host) { return sum + host.slots; });
}

std::optional<HostAllocation> place(std::vector<Host> const& hosts, std::span<int const> numbers) {
  int const slots = slots_of(hosts);
  if (numbers.empty()) {
    return HostAllocation{hosts, slots};
  }
  auto const number = std::ranges::find_if(numbers, [&](int ranks) { return ranks <= slots; });
  if (number == numbers.end()) {
    return std::nullopt;
  }
  HostAllocation placement{.hosts = {}, .ranks = *number};
  for (auto host = hosts.begin(); slots_of(placement.hosts) < *number; ++host) {
    placement.hosts.push_back(*host);
  }
  return placement;
}

std::string missing_from(std::vector<Host> const& hosts, std::vector<Host> const& present) {
  std::string names;
  for (Host const& host : hosts) {
    if (std::ranges::find(present, host) == present.end()) {
      names += (names.empty() ? "" : ", ") + host.name;
    }
  }
  return names;
}

}  // namespace heddle
