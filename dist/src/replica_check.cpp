#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <heddle/core/error.hpp>
#include <heddle/core/random.hpp>
#include <heddle/dist/replica_check.hpp>
#include <map>
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

/// What one rank tells of itself: its world rank, then each parameter's digest. Two int32 words each, the communicator
/// having no 64-bit integers.
std::vector<std::uint64_t> own_report(ParallelState const& parallel, ParameterSet const& parameters) {
  std::vector<std::uint64_t> report{static_cast<std::uint64_t>(parallel.world.rank())};
  for (Parameter const& parameter : parameters.all()) {
    report.push_back(digest(parameter.value));
  }
  return report;
}

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
  auto const own = own_report(parallel, parameters);
  auto const reports = all_reports(parallel.data, own);
  std::size_t const stride = own.size();
  std::size_t differing = 0;
  std::string first;
  for (std::size_t index = 1; index < stride; ++index) {
    std::map<std::uint64_t, std::vector<int>> ranks_by_digest;
    for (std::size_t report = 0; report < reports.size(); report += stride) {
      ranks_by_digest[reports[report + index]].push_back(static_cast<int>(reports[report]));
    }
    if (ranks_by_digest.size() > 1 && ++differing == 1) {
      first = fmt::format("parameter {} differs between ranks {}", parameters.all()[index - 1].spec.name,
                          describe_groups(ranks_by_digest));
    }
  }
  if (differing > 0) {
    throw Error(
        fmt::format("replicas diverged: {} ({} of {} parameters differ); data-parallel ranks must hold the same "
                    "bits, so a rank computed or received something wrong: go on from the last checkpoint",
                    first, differing, stride - 1),
        ExitCode::replicas_diverged);
  }
}

}  // namespace heddle
