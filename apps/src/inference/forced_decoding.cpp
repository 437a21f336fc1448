#include "inference/forced_decoding.hpp"

#include <algorithm>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <limits>
#include <numeric>
#include <utility>

#include "inference/probe.hpp"

namespace heddle {

/// The weights of one call of attention in a pass of a model.
class ForcedDecoding::Recording {
 public:
  /// `wanted` is the call's number, from 0.
  void begin(std::size_t wanted) {
    wanted_ = wanted;
    calls_ = 0;
  }
  /// The calls since begin().
  std::size_t calls() const { return calls_; }
  ObservedAttention end() {
    wanted_.reset();
    return std::move(recorded_);
  }
  /// True the first time only: of an ensemble one model is recorded.
  bool claim() { return !std::exchange(claimed_, true); }
  void called(Execution& execution, KernelRegistry<Attention> const& kernels, AttentionCall const& call) {
    if (wanted_ && calls_++ == *wanted_) {
      recorded_ = {call.heads, call.mask, {}, attention_weights(execution, kernels, call)};
    }
  }

 private:
  std::optional<std::size_t> wanted_;
  std::size_t calls_ = 0;
  bool claimed_ = false;
  ObservedAttention recorded_;
};

namespace {

using Tokens = std::vector<std::int32_t>;
using Recording = ForcedDecoding::Recording;

/// An implementation of attention whose calls can be recorded.
class RecordedAttention final : public Attention {
 public:
  RecordedAttention(std::shared_ptr<Attention> computes, std::shared_ptr<KernelRegistry<Attention> const> plain,
                    std::shared_ptr<Recording> recording)
      : computes_(std::move(computes)), plain_(std::move(plain)), recording_(std::move(recording)) {}

  Accuracy accuracy() const override { return computes_->accuracy(); }
  std::size_t kept_bytes() const override { return computes_->kept_bytes(); }
  bool supports(AttentionProblem const& problem) const override { return computes_->supports(problem); }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    recording_->called(execution, *plain_, call);
    computes_->forward(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    computes_->backward(execution, call, output, log_sum_exp, grad_output, gradients);
  }

 private:
  std::shared_ptr<Attention> computes_;
  std::shared_ptr<KernelRegistry<Attention> const> plain_;
  std::shared_ptr<Recording> recording_;
};

/// The implementations under their names and with their speeds, so that the same ones are selected, recorded.
KernelRegistry<Attention> recorded(KernelRegistry<Attention> const& plain,
                                   std::shared_ptr<Recording> const& recording) {
  auto const all = std::make_shared<KernelRegistry<Attention> const>(plain);
  KernelRegistry<Attention> result;
  for (auto const& [name, speed, origin, kernel] : plain.entries()) {
    result.set_origin(origin);
    result.add_part(name, speed, std::make_shared<RecordedAttention>(kernel, all, recording));
  }
  return result;
}

/// A pair as the model's loss takes it, and the rows of its own tokens.
struct FramedPair {
  Sample pair;
  std::size_t first_source = 0;  ///< of the source's first own token
  std::size_t first_target = 0;  ///< of the one that predicts the target's first own token
};

FramedPair framed(TrainedModel const& model, GivenTarget const& given) {
  TextFrame const& frame = model.frame();
  Tokens before = frame.target;
  if (before.empty() && !frame.start.empty()) {
    before.assign(frame.start.begin() + 1, frame.start.end());
  }
  auto const joined = [](Tokens tokens, Tokens const& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  };
  // A language that comes last follows the end.
  auto const rows_of = [](Tokens const& tokens, SpecialIds const& ids) {
    return tokens.size() - (ids.language_last && !tokens.empty() ? 1 : 0);
  };
  SideIds const ids = model.vocabulary().special_ids();
  return {{0, joined(frame.source, given.source), joined(before, given.target)},
          rows_of(frame.source, ids.source),
          rows_of(before, ids.target)};
}

/// The attention sublayers of a model, of which one is read.
struct Place {
  std::size_t sublayers = 0;
  std::size_t read = 0;  ///< its number among them
  std::optional<std::int64_t> head = {};
};

Place place_of(AlignedAttention const& wanted, TrainedModel const& model) {
  std::vector<std::size_t> cross;
  std::int64_t guided = 0;
  auto const sublayers = attention_sublayers(model.description());
  for (std::size_t index = 0; index < sublayers.size(); ++index) {
    if (sublayers[index].queries != sublayers[index].keys) {
      cross.push_back(index);
      guided = sublayers[index].guided ? std::ssize(cross) : guided;
    }
  }
  if (cross.empty()) {
    throw ConfigError("alignments are read from cross-attention, and the model has none");
  }
  std::int64_t const usual = guided > 0 ? guided : std::max<std::int64_t>(std::ssize(cross) - 1, 1);
  std::int64_t const chosen = wanted.layer.value_or(usual);
  if (chosen < 1 || chosen > std::ssize(cross)) {
    throw UsageError("alignments of layer {}: expected one of the {} layers with cross-attention, from 1", chosen,
                     cross.size());
  }
  bool const first_head = !wanted.head && sublayers[cross[static_cast<std::size_t>(chosen - 1)]].guided;
  return {sublayers.size(), cross[static_cast<std::size_t>(chosen - 1)], first_head ? 1 : wanted.head};
}

/// Adds up the weights of heads [first, end), for a sequence's own tokens.
std::vector<double> own_weights(SequenceAttention const& all, FramedPair const& place, GivenTarget const& given,
                                std::int64_t first, std::int64_t end) {
  std::size_t const columns = given.source.size() + 1;
  std::vector<double> sums(given.target.size() * columns);
  for (std::int64_t head = first; head < end; ++head) {
    for (std::size_t row = 0; row < given.target.size(); ++row) {
      std::int64_t const query = head * all.queries + static_cast<std::int64_t>(place.first_target + row);
      auto const weights = all.weights.begin() + query * all.keys + static_cast<std::ptrdiff_t>(place.first_source);
      auto const sum = sums.begin() + static_cast<std::ptrdiff_t>(row * columns);
      std::transform(weights, weights + static_cast<std::ptrdiff_t>(columns), sum, sum, std::plus());
    }
  }
  return sums;
}

/// The heads of a rank's call that are read, and the number that their sum over all ranks is divided by.
struct ReadHeads {
  std::int64_t first = 0;
  std::int64_t end = 0;
  double divisor = 1;
};

/// Collective over the group, whose ranks have the same number of heads.
ReadHeads heads_of(std::optional<std::int64_t> head, ObservedAttention const& call, Communicator const& group) {
  std::int64_t const heads = call.heads * group.size();
  if (!head) {
    return {0, call.heads, static_cast<double>(heads)};
  }
  if (*head < 1 || *head > heads) {
    throw UsageError("alignments of head {}: expected one of the {} heads, from 1", *head, heads);
  }
  std::int64_t const own = *head - 1 - group.rank() * call.heads;
  bool const here = own >= 0 && own < call.heads;
  return {here ? own : 0, here ? own + 1 : 0};
}

}  // namespace

ForcedDecoding::ForcedDecoding(AlignedAttention const& read, TrainedModelOptions& model)
    : read_(read), recording_(std::make_shared<Recording>()) {
  if (kernel_memory_space() != MemorySpace::host) {
    throw ConfigError("alignments need kernels that compute on the host, and this build's compute on a device");
  }
  model.add_kernels = [recording = recording_, others = model.add_kernels](KernelRegistries& kernels,
                                                                           KernelChoices& choices) {
    if (others) {
      others(kernels, choices);
    }
    if (recording->claim()) {
      kernels.of<Attention>() = recorded(kernels.of<Attention>(), recording);
    }
  };
}

std::vector<double> score(TrainedModel& model, std::span<std::string const> sources,
                          std::span<std::string const> targets, Languages const& languages) {
  if (sources.size() != targets.size()) {
    throw UsageError("{} sources and {} targets: expected pairs", sources.size(), targets.size());
  }
  model.choose_languages(languages);
  std::vector<GivenTarget> given;
  for (std::size_t index = 0; index < sources.size(); ++index) {
    given.push_back(
        {model.vocabulary().source.encode(sources[index]), model.vocabulary().target.encode(targets[index])});
  }
  std::vector<double> sums;
  for (ForcedTarget const& forced : ForcedDecoding().decode(model, given)) {
    sums.push_back(forced.losses.empty() ? std::numeric_limits<double>::quiet_NaN()
                                         : -std::accumulate(forced.losses.begin(), forced.losses.end(), 0.0));
  }
  return sums;
}

std::vector<ForcedTarget> ForcedDecoding::decode(TrainedModel& model, std::span<GivenTarget const> given) const {
  std::vector<FramedPair> places;
  std::vector<Sample> pairs;
  for (GivenTarget const& each : given) {
    places.push_back(framed(model, each));
    pairs.push_back(places.back().pair);
    pairs.back().number = static_cast<std::int32_t>(pairs.size()) - 1;
  }
  std::vector<ForcedTarget> forced(given.size());
  std::vector<double> const weights = model.weights();
  TrainedModel::PackObserver packed;
  if (recording_) {
    Place const place = place_of(read_, model);
    recording_->begin(place.read);
    packed = [&, place](std::span<std::size_t const> indices) {
      if (recording_->calls() != place.sublayers) {
        throw ConfigError("alignments: the model's {} attention sublayers made {} calls of the operation",
                          place.sublayers, recording_->calls());
      }
      ObservedAttention const call = recording_->end();
      auto const [first, end, divisor] = heads_of(place.head, call, model.tensor());
      for (std::size_t sequence = 0; sequence < indices.size(); ++sequence) {
        std::size_t const index = indices[sequence];
        auto const own = own_weights(call.sequences[sequence], places[index], given[index], first, end);
        forced[index].attention = sums_of(model.tensor(), own);
        std::ranges::for_each(forced[index].attention, [&, by = divisor](double& weight) { weight /= by; });
      }
      recording_->begin(place.read);
    };
  }
  std::vector<TrainedModel::ModelLosses> const losses = model.token_losses(pairs, packed);
  if (recording_) {
    recording_->end();
  }
  for (std::size_t index = 0; index < given.size(); ++index) {
    forced[index].losses.resize(losses[index].empty() ? 0 : given[index].target.size() + 1);
    for (std::size_t of = 0; of < losses[index].size(); ++of) {
      // Without the tokens that every translation into the language starts with: `translate` is given them, too.
      std::span const own =
          std::span(losses[index][of]).subspan(places[index].first_target, given[index].target.size() + 1);
      double sum = 0;
      for (std::size_t token = 0; token < own.size(); ++token) {
        forced[index].losses[token] += weights[of] * own[token];
        sum += own[token];
      }
      forced[index].log_probabilities.push_back(-sum);
    }
  }
  return forced;
}

}  // namespace heddle
