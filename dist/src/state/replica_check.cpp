#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <heddle/core/base/digest.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <map>
#include <span>
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
    "A rank computed or received wrong numbers (its memory, its processor or the network may be faulty): resume from "
    "the last checkpoint";

/// For tensor ranks, or those of another axis that may split parameters, that differ while replicas, if there are any,
/// are equal: a fault of one rank would show there, too.
constexpr std::string_view undeclared_sum =
    "If a plug-in's layer has this parameter, and each tensor rank computes a part of its gradient, the parts were not "
    "added up: place the parameter with gradient_partial_over = {MeshAxis::tensor}, or spec.stream_axes() where it is "
    "applied to rows of the stream (docs/guide/plugins.md). Otherwise a rank computed or received wrong numbers "
    "(its memory, its processor or the network may be faulty): resume from the last checkpoint";

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

/// How surely a finding names the tensor and the ranks with the fault. A damaged tensor makes others differ, too, but
/// only between tensor ranks and the like, which compute from it: replicas, and stages, apply the same sums of
/// gradients.
enum class Surety : std::int32_t { nothing, model_axes, stages, replicas, damage };

struct Finding {
  Surety surety = Surety::nothing;
  std::string text;
};

/// Digests of everything that must be the same on several ranks, in the order in which differences are searched.
class Digests {
 public:
  explicit Digests(ParallelState const& parallel) : parallel_(parallel) {}

  void add(Placement const& placement, std::string name, Tensor const& tensor) {
    NamedDigest const& held = all_.emplace_back(NamedDigest{std::move(name), digest(tensor)});
    for (MeshAxis const axis : parallel_.mesh.shape().model_axes()) {
      if (!placement.is_split_over(axis)) {
        along_model_axes_[axis].push_back(held);
      }
    }
    if (placement.on_several_stages()) {
      on_several_stages_.push_back(held);
    }
  }

  void add_values(ParameterSet const& parameters) {
    for (Parameter const& parameter : parameters.all()) {
      if (parameters.section_of(parameter) == nullptr) {
        add(parameter.placement(), fmt::format("parameter {}", parameter.spec.name), parameter.value);
      } else if (IndexRange const held = parameters.held_places(parameter); held.count() > 0) {
        add(parameter.placement(), fmt::format("parameter {}", heddle::describe(parameter, held)),
            parameters.values_in(held));
      }
    }
  }

  /// Adds the pieces of the optimizer's state on this rank. If it is sharded, replicas hold different pieces, which
  /// have different names.
  void add_state(ParameterSet const& parameters, DistributedOptimizer const& optimizer) {
    for (Parameter const* const parameter : parameters.trained()) {
      std::int64_t const begin = parameter->place.begin;
      for (std::string const& key : parameter->state) {
        for (IndexRange const& kept : optimizer.kept_state(*parameter, key)) {
          std::string const of = parameter->whole_state.contains(key)
                                     ? parameter->spec.name
                                     : heddle::describe(*parameter, {begin + kept.begin, begin + kept.end});
          add(parameter->placement(), fmt::format("{} of {}", key, of), optimizer.state_in(*parameter, key, kept));
        }
      }
    }
  }

  /// Adds tensors that this rank knows to be damaged.
  void add_damage(std::vector<std::string> names) { damaged_ = std::move(names); }

  /// Throws on every rank of the world what one of them has found: the lowest of those with the surest finding.
  void compare() const {
    Finding const own = finding();
    std::vector<Surety> const found = gather_values(parallel_.world, own.surety);
    auto const surest = std::ranges::max_element(found);
    if (*surest == Surety::nothing) {
      return;
    }
    std::string const text = broadcast_text(parallel_.world, own.text, static_cast<int>(surest - found.begin()));
    throw Error("replicas diverged: " + text, ExitCode::replicas_diverged);
  }

 private:
  /// Collective over the world.
  Finding finding() const {
    int const world_rank = parallel_.world.rank();
    auto const replicas = differences(parallel_.replicas, world_rank, all_);
    auto const stages = differences(parallel_.pipeline, world_rank, on_several_stages_);
    std::map<std::string, std::string> model_axes;
    for (MeshAxis const axis : parallel_.mesh.shape().model_axes()) {
      auto const held = along_model_axes_.find(axis);
      model_axes.merge(differences(parallel_.group({axis}), world_rank,
                                   held == along_model_axes_.end() ? std::vector<NamedDigest>() : held->second));
    }
    if (!damaged_.empty()) {
      return {Surety::damage,
              fmt::format("{} on rank {} ({}) changed between two updates ({} of its tensors did); only "
                          "this rank updates it (parallel.shard_optimizer, shard_parameters or expert). {}",
                          damaged_.front(), world_rank, host_name(), readable_count(damaged_.size()), wrong_numbers)};
    }
    if (!replicas.empty()) {
      return {Surety::replicas, describe(replicas, wrong_numbers)};
    }
    if (!stages.empty()) {
      return {Surety::stages, describe(stages, wrong_numbers)};
    }
    return model_axes.empty() ? Finding{} : Finding{Surety::model_axes, describe(model_axes, undeclared_sum)};
  }

  /// The first tensor that differs, and what that means.
  std::string describe(std::map<std::string, std::string> const& differing, std::string_view meaning) const {
    auto const first = std::ranges::find_if(
        all_, [&](NamedDigest const& tensor) { return differing.find(tensor.name) != differing.end(); });
    return fmt::format(
        "{} differs between ranks {} ({} of {} tensors differ); ranks that hold the same tensor must "
        "hold the same bits. {}",
        first->name, differing.at(first->name), readable_count(differing.size()), readable_count(all_.size()), meaning);
  }

  ParallelState const& parallel_;
  std::vector<NamedDigest> all_;
  std::map<MeshAxis, std::vector<NamedDigest>> along_model_axes_;
  std::vector<NamedDigest> on_several_stages_;
  std::vector<std::string> damaged_;
};

}  // namespace

std::uint64_t digest(Tensor const& tensor) {
  auto const bytes = static_cast<std::size_t>(tensor.bytes());
  if (tensor.space() == MemorySpace::host) {
    return digest(std::span(static_cast<std::byte const*>(tensor.raw()), bytes));
  }
  std::vector<std::byte> copy(bytes);
  copy_to_host(copy.data(), tensor);
  return digest(copy);
}

void check_replicas(ParallelState const& parallel, ParameterSet const& parameters,
                    DistributedOptimizer const* optimizer) {
  Digests digests(parallel);
  digests.add_values(parameters);
  if (optimizer != nullptr) {
    digests.add_state(parameters, *optimizer);
    digests.add_damage(optimizer->damaged());
  }
  digests.compare();
}

}  // namespace heddle
