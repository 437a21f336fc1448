#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

namespace {

/// Groups of world ranks that hold the same value, the largest first.
std::string describe_groups(std::map<std::uint64_t, std::vector<int>> const& ranks_by_digest) {
  std::vector<std::vector<int>> groups;
  for (auto const& [digest, ranks] : ranks_by_digest) {
    groups.push_back(ranks);
  }
  std::stable_sort(groups.begin(), groups.end(), [](auto const& left, auto const& right) {
    return left.size() != right.size() ? left.size() > right.size() : left.front() < right.front();
  });
  constexpr std::size_t shown = 16;
  std::string text;
  for (auto const& ranks : groups) {
    auto const end = ranks.begin() + static_cast<std::ptrdiff_t>(std::min(shown, ranks.size()));
    text += fmt::format("{}{{{}{}}}", text.empty() ? "" : " and ", fmt::join(ranks.begin(), end, ", "),
                        ranks.size() > shown ? fmt::format(", … {} in all", ranks.size()) : "");
  }
  return text;
}

struct NamedDigest {
  std::string name;
  std::uint64_t digest;
};

/// What one rank tells of itself: its world rank, then a hash of each parameter's name and its digest; padded with
/// zeros to `parameters` of them, as stages hold different ones.
std::vector<std::uint64_t> report_of(int world_rank, std::vector<NamedDigest> const& held, std::size_t parameters) {
  std::vector<std::uint64_t> report{static_cast<std::uint64_t>(world_rank)};
  for (NamedDigest const& parameter : held) {
    report.push_back(random_key(0, parameter.name));
    report.push_back(parameter.digest);
  }
  report.resize(1 + 2 * parameters);
  return report;
}

/// Two int32 words for each, the communicator having no 64-bit integers.
std::vector<std::uint64_t> all_reports(Communicator const& group, std::vector<std::uint64_t> const& own) {
  auto const words = static_cast<std::int64_t>(2 * own.size());
  Tensor const input = Tensor::allocate(DType::int32, {words});
  Tensor const output = Tensor::allocate(DType::int32, {words * group.size()});
  copy_from_host(input, own.data());
  group.all_gather(input, output);
  std::vector<std::uint64_t> reports(own.size() * static_cast<std::size_t>(group.size()));
  copy_to_host(reports.data(), output);
  return reports;
}

std::size_t largest_of(Communicator const& group, std::size_t count) {
  Tensor const largest = from_host<std::int32_t>(std::array{static_cast<std::int32_t>(count)}, {1});
  group.all_reduce(largest, ReduceOp::max);
  return static_cast<std::size_t>(to_host<std::int32_t>(largest).front());
}

/// Of the parameters that `held` names, those whose digests differ among the ranks of the group that hold them: how
/// they differ, by name. Collective over the group.
std::map<std::string, std::string> differences(Communicator const& group, int world_rank,
                                               std::vector<NamedDigest> const& held) {
  if (group.size() == 1) {
    return {};
  }
  std::size_t const parameters = largest_of(group, held.size());
  auto const reports = all_reports(group, report_of(world_rank, held, parameters));
  std::map<std::uint64_t, std::map<std::uint64_t, std::vector<int>>> ranks_by_name_and_digest;
  for (std::size_t begin = 0; begin < reports.size(); begin += 1 + 2 * parameters) {
    for (std::size_t index = begin + 1; index < begin + 1 + 2 * parameters; index += 2) {
      ranks_by_name_and_digest[reports[index]][reports[index + 1]].push_back(static_cast<int>(reports[begin]));
    }
  }
  std::map<std::string, std::string> found;
  for (NamedDigest const& parameter : held) {
    auto const& ranks_by_digest = ranks_by_name_and_digest.at(random_key(0, parameter.name));
    if (ranks_by_digest.size() > 1) {
      found.emplace(parameter.name, describe_groups(ranks_by_digest));
    }
  }
  return found;
}

}  // namespace

std::uint64_t digest(Tensor const& tensor) {
  auto const bytes = static_cast<std::size_t>(tensor.bytes());
  std::vector<std::byte> host(bytes);
  copy_to_host(host.data(), tensor);
  // Four chains side by side, as each waits for its own multiplication.
  constexpr std::size_t lanes = 4;
  constexpr std::size_t block = lanes * sizeof(std::uint64_t);
  std::array<std::uint64_t, lanes> chains{1, 2, 3, 4};
  for (std::size_t begin = 0; begin < bytes; begin += block) {
    std::array<std::uint64_t, lanes> words{};
    std::memcpy(words.data(), host.data() + begin, std::min(block, bytes - begin));
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      chains[lane] = std::rotl((chains[lane] ^ words[lane]) * 0x9E3779B97F4A7C15ULL, 29);
    }
  }
  std::uint64_t result = mix_bits(bytes);
  for (std::uint64_t const chain : chains) {
    result = mix_bits(result ^ chain) + chain;
  }
  return result;
}

void check_replicas(ParallelState const& parallel, ParameterSet const& parameters) {
  std::vector<NamedDigest> all;
  std::vector<NamedDigest> on_each_tensor_rank;
  std::vector<NamedDigest> on_several_stages;
  for (Parameter const& parameter : parameters.all()) {
    ParameterSpec const& spec = parameter.spec;
    NamedDigest const& held = all.emplace_back(NamedDigest{spec.name, digest(parameter.value)});
    if (spec.shard.axis < 0 || spec.shard.mesh_axis != MeshAxis::tensor) {
      on_each_tensor_rank.push_back(held);
    }
    if (spec.stages.size() > 1) {
      on_several_stages.push_back(held);
    }
  }
  // All is compared before anyone throws, so that no rank waits for one that has thrown.
  int const world_rank = parallel.world.rank();
  auto differing = differences(parallel.replicas, world_rank, all);
  differing.merge(differences(parallel.tensor, world_rank, on_each_tensor_rank));
  differing.merge(differences(parallel.pipeline, world_rank, on_several_stages));
  for (NamedDigest const& parameter : all) {
    if (auto const first = differing.find(parameter.name); first != differing.end()) {
      throw Error(fmt::format("replicas diverged: parameter {} differs between ranks {} ({} of {} parameters differ); "
                              "ranks that hold the same parameter must hold the same bits, so a rank computed or "
                              "received something wrong: go on from the last checkpoint",
                              first->first, first->second, differing.size(), all.size()),
                  ExitCode::replicas_diverged);
    }
  }
}

}  // namespace heddle
