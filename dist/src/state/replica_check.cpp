#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

namespace {

/// Groups of world ranks that hold the same value, the largest group first.
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

constexpr std::string_view wrong_numbers =
    "A rank computed or received something wrong (its memory, its processor or the network may be faulty): go on from "
    "the last checkpoint";

/// For tensor ranks that differ while replicas, if there are any, are equal: a fault of one rank would show there, too.
constexpr std::string_view undeclared_sum =
    "If a plug-in's layer has this parameter, and each tensor rank computes a part of its gradient, the parts were not "
    "added up: declare the parameter with gradient_partial_over = {MeshAxis::tensor}, or spec.stream_axes() where it "
    "is "
    "applied to rows of the stream (docs/kernels-and-plugins.md). Otherwise a rank computed or received something "
    "wrong "
    "(its memory, its processor or the network may be faulty): go on from the last checkpoint";

/// A tensor, or the piece of one that is on this rank, with a name that is the same on every rank that holds it.
struct NamedDigest {
  std::string name;
  std::uint64_t digest;
};

/// One rank's digest of one of its tensors.
struct Report {
  std::uint64_t name = 0;  ///< a hash of it
  std::uint64_t digest = 0;
  std::int64_t world_rank = 0;
};

/// Returns how tensors differ among the ranks of the group that hold them, for the names in `held`. Collective over
/// the group.
std::map<std::string, std::string> differences(Communicator const& group, int world_rank,
                                               std::vector<NamedDigest> const& held) {
  if (group.size() == 1) {
    return {};
  }
  std::vector<Report> own;
  for (NamedDigest const& tensor : held) {
    own.push_back({random_key(0, tensor.name), tensor.digest, world_rank});
  }
  std::map<std::uint64_t, std::map<std::uint64_t, std::vector<int>>> ranks_by_name_and_digest;
  for (auto const& reports : gather_lists<Report>(group, own)) {
    for (Report const& report : reports) {
      ranks_by_name_and_digest[report.name][report.digest].push_back(static_cast<int>(report.world_rank));
    }
  }
  std::map<std::string, std::string> found;
  for (NamedDigest const& tensor : held) {
    auto const& ranks_by_digest = ranks_by_name_and_digest.at(random_key(0, tensor.name));
    if (ranks_by_digest.size() > 1) {
      found.emplace(tensor.name, describe_groups(ranks_by_digest));
    }
  }
  return found;
}

/// Digests of everything that must be the same on several ranks, in the order in which differences are searched.
class Digests {
 public:
  void add(ParameterSpec const& spec, std::string name, Tensor const& tensor) {
    NamedDigest const& held = all_.emplace_back(NamedDigest{std::move(name), digest(tensor)});
    if (spec.shard.axis < 0 || spec.shard.mesh_axis != MeshAxis::tensor) {
      on_each_tensor_rank_.push_back(held);
    }
    if (spec.stages.size() > 1) {
      on_several_stages_.push_back(held);
    }
  }

  void add_values(ParameterSet const& parameters) {
    for (Parameter const& parameter : parameters.all()) {
      add(parameter.spec, fmt::format("parameter {}", parameter.spec.name), parameter.value);
    }
  }

  /// Adds the pieces of the moments on this rank. If they are sharded, replicas hold different pieces, which have
  /// different names.
  void add_moments(ParameterSet const& parameters, Optimizer const& optimizer) {
    for (Parameter const& parameter : parameters.all()) {
      IndexRange const elements = elements_of(parameter);
      for (IndexRange const& piece : intersection({elements}, optimizer.parts())) {
        std::string const where = piece == elements
                                      ? parameter.spec.name
                                      : fmt::format("{}'s elements {} to {}", parameter.spec.name,
                                                    piece.begin - elements.begin, piece.end - elements.begin - 1);
        auto const moments = [&](Tensor const& of) { return optimizer.moments_in(of, piece); };
        add(parameter.spec, "first moment of " + where, moments(optimizer.first_moments()));
        add(parameter.spec, "second moment of " + where, moments(optimizer.second_moments()));
      }
    }
  }

  /// Compares everything before it throws, so that no rank waits for one that has thrown.
  void compare(ParallelState const& parallel) const {
    int const world_rank = parallel.world.rank();
    auto const among_replicas = differences(parallel.replicas, world_rank, all_);
    auto const among_tensor_ranks = differences(parallel.tensor, world_rank, on_each_tensor_rank_);
    auto differing = among_replicas;
    differing.insert(among_tensor_ranks.begin(), among_tensor_ranks.end());
    differing.merge(differences(parallel.pipeline, world_rank, on_several_stages_));
    for (NamedDigest const& tensor : all_) {
      if (auto const first = differing.find(tensor.name); first != differing.end()) {
        bool const declaration = among_replicas.empty() && !among_tensor_ranks.empty();
        throw Error(
            fmt::format("replicas diverged: {} differs between ranks {} ({} of {} tensors differ); ranks that hold the "
                        "same tensor must hold the same bits. {}",
                        first->first, first->second, readable_count(differing.size()), readable_count(all_.size()),
                        declaration ? undeclared_sum : wrong_numbers),
            ExitCode::replicas_diverged);
      }
    }
  }

 private:
  std::vector<NamedDigest> all_;
  std::vector<NamedDigest> on_each_tensor_rank_;
  std::vector<NamedDigest> on_several_stages_;
};

}  // namespace

std::uint64_t digest(Tensor const& tensor) {
  auto const bytes = static_cast<std::size_t>(tensor.bytes());
  std::vector<std::byte> copy;
  auto const* host = static_cast<std::byte const*>(tensor.raw());
  if (tensor.space() != MemorySpace::host) {
    copy.resize(bytes);
    copy_to_host(copy.data(), tensor);
    host = copy.data();
  }
  // Four independent chains, because each step waits for its own multiplication.
  constexpr std::size_t lanes = 4;
  constexpr std::size_t block = lanes * sizeof(std::uint64_t);
  std::array<std::uint64_t, lanes> chains{1, 2, 3, 4};
  for (std::size_t begin = 0; begin < bytes; begin += block) {
    std::array<std::uint64_t, lanes> words{};
    std::memcpy(words.data(), host + begin, std::min(block, bytes - begin));
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
  Digests digests;
  digests.add_values(parameters);
  digests.compare(parallel);
}

void check_replicas(ParallelState const& parallel, ParameterSet const& parameters, Optimizer const& moments) {
  Digests digests;
  digests.add_values(parameters);
  digests.add_moments(parameters, moments);
  digests.compare(parallel);
}

}  // namespace heddle
