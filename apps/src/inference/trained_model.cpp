#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/model.hpp>
#include <map>
#include <numeric>

#include "run/checkpoints/averaging.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {
namespace {

/// Throws ConfigError where an override changes the model in which the checkpoint's parameters were trained. Longer
/// sentences do not.
void require_model_of(Checkpoint const& checkpoint, Config const& config) {
  for (ConfigDifference const& difference : differences(checkpoint, config, ResumeRule::identity)) {
    bool const of_model = difference.key.starts_with("model.") || difference.key.starts_with("adapter.");
    if (of_model && difference.key != "model.max_length") {
      throw ConfigError(
          "{} = {}: {} was trained with {}; a key that changes what the model computes cannot "
          "be overridden",
          difference.key, difference.after, checkpoint.directory().string(), difference.before);
    }
  }
}

/// Memory for the values. The host's is not touched here, except for the padding: to give a process its pages takes as
/// long as to fill them, and several threads do that.
Tensor memory_for(ParameterSet const& parameters) {
  if (kernel_memory_space() != MemorySpace::host) {
    return Tensor::allocate(DType::float32, {parameters.size()});
  }
  Tensor values = Tensor::allocate_on_host(DType::float32, {parameters.size()});
  std::map<std::int64_t, std::int64_t> filled;  // ends by begins
  for (Parameter const& parameter : parameters.all()) {
    if (!parameter.shared) {
      filled[parameter.place.begin] = parameter.place.begin + parameter.local_shape.size();
    }
  }
  filled[parameters.size()] = parameters.size();
  std::int64_t end = 0;
  for (auto const& [begin, next_end] : filled) {
    std::fill(values.data<float>() + end, values.data<float>() + begin, 0.F);
    end = next_end;
  }
  return values;
}

/// Whether an option --set names plug-ins.
bool names_plugins(std::string const& override_text) {
  std::string key = override_text.substr(0, override_text.find('='));
  std::erase_if(key, [](char letter) { return std::string_view(" \t\"'").find(letter) != std::string_view::npos; });
  return key == "plugins.paths";
}

}  // namespace

std::unique_ptr<TrainedModel> TrainedModel::open(TrainedModelOptions const& options, ModelRequirement const& require) {
  if (!options.quantize.empty() && options.quantize != "int8") {
    throw UsageError("--quantize {}: expected int8", options.quantize);
  }
  if (!options.adapters.empty() && (!options.ensemble.empty() || !options.adapter.empty())) {
    throw UsageError("--adapter NAME=RUN beside another model or adapters without a name: expected one base");
  }
  TrainedModelOptions of_base = options;
  of_base.average = options.adapters.empty() ? options.average : 1;
  std::unique_ptr<TrainedModel> model = open(of_base, require, nullptr);
  model->open_others(options, require);
  model->open_adapters(options, require);
  return model;
}

std::unique_ptr<TrainedModel> TrainedModel::open(TrainedModelOptions const& options, ModelRequirement const& require,
                                                 TrainedModel const* base) {
  auto [checkpoints, skipped] = open_checkpoints(options, {value_key}, options.group, Verification::at_reading);
  std::string digests;
  for (Checkpoint const& checkpoint : checkpoints) {
    digests += checkpoint.digest() + " ";
  }
  AveragedModel const average(std::move(checkpoints));
  Checkpoint const& first = average.first();
  Config config = stored_config(first, options.overrides);
  require_model_of(first, config);
  if (!options.quantize.empty()) {
    config.kernels.choose("gemm", options.quantize, "--quantize");
  }
  std::unique_ptr<TrainedModel> model(new TrainedModel(std::move(config), first.contents().vocabulary(), options));
  model->digests_ = digests;
  if (base == nullptr) {
    model->register_all(first, options);
  } else {
    model->registries_ = base->registries_;
    model->arena_ = base->arena_;
  }
  model->build([&](ModelDescription const& description) {
    check_description(first, description);
    if (require) {
      require(description);
    }
  });
  model->load(average, base);
  model->skipped_ = std::move(skipped);
  return model;
}

void TrainedModel::open_adapters(TrainedModelOptions const& options, ModelRequirement const& require) {
  TrainedModelOptions of_adapter = options;
  of_adapter.execution = execution_;
  of_adapter.adapters.clear();
  for (auto const& [name, run] : options.adapters) {
    of_adapter.adapter = run;
    std::unique_ptr<TrainedModel> adapted = open(of_adapter, require, this);
    if (adapted->digest_ != digest_ || adapted->vocabulary_.digest() != vocabulary_.digest()) {
      throw DataError(
          "{}: its adapters were trained with another checkpoint in {} than the one that is "
          "opened; name that one with --checkpoint",
          run, options.checkpoint);
    }
    skipped_.insert(skipped_.end(), adapted->skipped_.begin(), adapted->skipped_.end());
    adapted_[name] = std::move(adapted);
  }
}

TrainedModel& TrainedModel::with_adapter(std::string const& name) {
  auto const found = adapted_.find(name);
  if (found == adapted_.end() && !name.empty()) {
    throw UsageError("there are no adapters \"{}\"; expected one of: {}", name, fmt::join(adapters(), ", "));
  }
  return name.empty() ? *this : *found->second;
}

std::vector<std::string> TrainedModel::adapters() const {
  std::vector<std::string> names;
  std::ranges::transform(adapted_, std::back_inserter(names), [](auto const& each) { return each.first; });
  return names;
}

void TrainedModel::choose_languages(Languages const& languages, LanguageOptions const& options) {
  frame_ = frame_of(vocabulary_, languages, options);
  for (auto const& [name, adapted] : adapted_) {
    adapted->frame_ = frame_;
  }
}

void TrainedModel::open_others(TrainedModelOptions const& options, ModelRequirement const& require) {
  std::vector<double> weights = options.weights;
  weights.resize(weights.empty() ? options.ensemble.size() + 1 : weights.size(), 1);
  double const sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (weights.size() != options.ensemble.size() + 1 || !std::isfinite(sum) ||
      !std::ranges::all_of(weights, [](double weight) { return weight > 0; })) {
    throw UsageError("--weight {}: expected a number above 0 for each --checkpoint, or none", fmt::join(weights, " "));
  }
  weight_ = weights.front() / sum;
  TrainedModelOptions of_other = options;
  of_other.execution = execution_;
  of_other.ensemble.clear();
  of_other.weights.clear();
  for (std::size_t index = 0; index < options.ensemble.size(); ++index) {
    of_other.checkpoint = options.ensemble[index];
    auto other = open(of_other, require, nullptr);
    if (other->vocabulary_.digest() != vocabulary_.digest()) {
      throw DataError("{} and {} have different vocabularies; an ensemble needs one", options.checkpoint,
                      of_other.checkpoint);
    }
    other->weight_ = weights[index + 1] / sum;
    skipped_.insert(skipped_.end(), other->skipped_.begin(), other->skipped_.end());
    others_.push_back(std::move(other));
  }
}

std::int64_t TrainedModel::longest_source() const {
  return generation_model().max_length - 1;
}

TrainedModel::TrainedModel(Config config, Vocabulary vocabulary, TrainedModelOptions const& options)
    : config_(std::move(config)),
      vocabulary_(std::move(vocabulary)),
      own_runtime_(options.execution == nullptr ? std::make_unique<Runtime>() : nullptr),
      execution_(options.execution == nullptr ? &own_runtime_->execution() : options.execution) {
  if (int const ranks = options.group.size(); ranks > 1) {
    parallel_ = make_parallel_state(options.group, Mesh(MeshShape(1, 1, 1, ranks), options.group.rank(), ranks));
    parameters_ = ParameterSet(parallel_.mesh);
  }
}

std::string TrainedModel::digest() const {
  std::string all = digests_;
  for (auto const& other : others_) {
    all += other->digest();
  }
  for (auto const& [name, adapted] : adapted_) {
    all += adapted->digest();
  }
  return sha256(all);
}

void TrainedModel::register_all(Checkpoint const& checkpoint, TrainedModelOptions const& options) {
  bool const own_paths = std::ranges::any_of(options.overrides, names_plugins);
  PluginsConfig const plugins = trusted_plugins(config_.plugins, {options.plugins, options.trust_plugins || own_paths},
                                                checkpoint.directory().string());
  registries_ = std::make_shared<Registries>();
  arena_ = std::make_shared<Arena>();
  register_everything({.plugins = read_plugins(plugins), .trust_plugins = options.trust_plugins}, *registries_,
                      *execution_);
  if (options.add_kernels) {
    options.add_kernels(registries_->kernels, config_.kernels);
  }
}

void TrainedModel::build(ModelRequirement const& require) {
  registries_->kernels.require_known(config_.kernels);
  config_.model.frozen.rounded = false;  // values that were rounded are read as float32, of which kernels keep copies
  require(describe_model(config_.model, registries_->layers));
  VocabularySizes const sizes{vocabulary_.source.size(), vocabulary_.target.size(), vocabulary_.joint()};
  model_ = std::make_unique<Model>(LayerSpec{.name = "",
                                             .side = Side::source,
                                             .model = config_.model,
                                             .dtype = dtype_of(config_.train.precision),
                                             .kernels = {registries_->kernels, config_.kernels},
                                             .parallel = parallel_,
                                             .parameters = parameters_},
                                   registries_->layers, sizes);
}

void TrainedModel::share_values(AveragedModel const& model, TrainedModel const* base) {
  CheckpointBase const& of_base = model.first().contents().base;
  digest_ = base == nullptr ? model.first().digest() : of_base.digest;
  for (Parameter const& parameter : parameters_.all()) {
    std::string const& name = parameter.spec.name;
    if (base == nullptr) {
      origins_[name] = {digest_, name};
    } else if (model.in_base(name)) {
      origins_[name] = {digest_, of_base.names.at(name), of_base.rounded.contains(name)};
    }
  }
  auto const share = [&](TrainedModel const& other) {
    parameters_.share_values(other.parameters_, [&](std::string const& name) {
      auto const mine = origins_.find(name);
      auto const its = other.origins_.find(name);
      return mine != origins_.end() && its != other.origins_.end() && mine->second == its->second;
    });
  };
  if (base != nullptr) {
    share(*base);
    std::ranges::for_each(base->adapted_, [&](auto const& each) { share(*each.second); });
  }
}

void TrainedModel::load(AveragedModel const& model, TrainedModel const* base) {
  check_parameters(model.first(), parameters_);
  share_values(model, base);
  parameters_.arrange();
  parameters_.bind(memory_for(parameters_), Tensor());  // inference needs no gradients
  std::vector<Tensor> on_host;
  std::vector<SliceInto> wanted;
  std::vector<Tensor> values;
  for (Parameter const& parameter : parameters_.all()) {
    if (parameter.shared) {
      continue;
    }
    values.push_back(parameter.value);
    bool const direct = parameter.value.space() == MemorySpace::host;
    on_host.push_back(direct ? parameter.value : Tensor::allocate_on_host(DType::float32, parameter.local_shape));
    Tensor const& memory = on_host.back();
    wanted.push_back({{parameter.spec.name, value_key, parameter.slice.ranges()},
                      {memory.data<float>(), static_cast<std::size_t>(memory.size())}});
  }
  model.read(wanted);
  for (std::size_t index = 0; index < on_host.size(); ++index) {
    if (values[index].space() != MemorySpace::host) {
      copy_from_host(values[index], on_host[index].raw());
    }
  }
  parameters_.bump_versions();
}

std::vector<std::vector<Hypothesis>> TrainedModel::generate(std::span<std::vector<std::int32_t> const> sources,
                                                            GenerationOptions const& options,
                                                            std::span<std::vector<std::int32_t> const> starts) {
  return heddle::generate(*execution_, *arena_, generation_model(), sources, options, starts);
}

std::unique_ptr<Generation> TrainedModel::generation(GenerationOptions const& options) {
  return std::make_unique<Generation>(*execution_, *arena_, generation_model(), options);
}

GenerationModel TrainedModel::generation_model() const {
  GenerationModel model{*model_, vocabulary_.special_ids(), config_.model.max_length, limits_of(vocabulary_)};
  model.weight = weight_;
  // Texts without a frame have no language.
  model.ids.source.language_last = model.ids.source.language_last && !frame_.source.empty();
  for (auto const& other : others_) {
    model.max_length = std::min<std::int64_t>(model.max_length, other->config_.model.max_length);
    model.others.push_back({other->model_.get(), other->weight_});
  }
  return model;
}

LossSums TrainedModel::loss(MicroBatchSource const& micro_batches) {
  LossSums total;
  for (std::int64_t index = 0; index < micro_batches.count(); ++index) {
    Pack const pack = micro_batches.micro_batch(index);
    LayerContext context{*execution_, *arena_, pack};
    LossSums sums = model_->forward(context, 0);
    sums.negative_log_likelihood *= weight_;
    for (auto const& other : others_) {
      sums.negative_log_likelihood += other->weight_ * other->model_->forward(context, 0).negative_log_likelihood;
    }
    total += sums;
  }
  return total;
}

std::vector<double> TrainedModel::weights() const {
  std::vector<double> weights{weight_};
  std::ranges::transform(others_, std::back_inserter(weights), [](auto const& other) { return other->weight_; });
  return weights;
}

std::vector<TrainedModel::ModelLosses> TrainedModel::token_losses(std::span<Sample const> pairs,
                                                                  PackObserver const& packed) {
  constexpr std::size_t pack_tokens = 4096;
  auto const longer = [&](std::size_t index) {
    return std::max(pairs[index].source.tokens.size(), pairs[index].target.tokens.size()) + 1;
  };
  std::vector<std::size_t> order;
  for (std::size_t index = 0; index < pairs.size(); ++index) {
    if (static_cast<std::int64_t>(longer(index)) <= longest_source() + 1) {
      order.push_back(index);
    }
  }
  std::ranges::stable_sort(order, {}, longer);
  std::vector<ModelLosses> losses(pairs.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::vector<Sample> of_pack;
    for (std::size_t tokens = 0; end < order.size() && (end == begin || tokens + longer(order[end]) <= pack_tokens);
         ++end) {
      of_pack.push_back(pairs[order[end]]);
      tokens += longer(order[end]);
    }
    Pack const pack = make_pack(of_pack, vocabulary_.special_ids());
    LayerContext context{*execution_, *arena_, pack};
    std::vector<std::vector<double>> rows{model_->token_losses(context)};
    if (packed) {
      packed(std::span(order).subspan(begin, end - begin));
    }
    std::ranges::transform(others_, std::back_inserter(rows),
                           [&](auto const& other) { return other->model_->token_losses(context); });
    std::ptrdiff_t row = 0;
    for (std::size_t index = begin; index < end; ++index) {
      auto const count = static_cast<std::ptrdiff_t>(pairs[order[index]].target.tokens.size()) + 1;
      for (std::vector<double> const& of_model : rows) {
        losses[order[index]].emplace_back(of_model.begin() + row, of_model.begin() + row + count);
      }
      row += count;
    }
  }
  return losses;
}

std::vector<std::vector<float>> TrainedModel::embed(std::span<std::vector<std::int32_t> const> sequences) {
  ModelConfig const& keys = config_.model;
  std::vector<std::vector<float>> means;
  for (std::vector<std::int32_t> const& tokens : sequences) {
    std::vector<std::int32_t> input = tokens;
    if (keys.is_decoder_only()) {
      input.insert(input.begin(), vocabulary_.special_ids().target.begin);
    } else {
      input.push_back(vocabulary_.special_ids().source.end);
    }
    SampleSide const source(tokens);
    TokenSequence const sequence{0, input, input};
    Pack const pack =
        model_->has_encoder_output()
            ? make_source_pack(std::span(&source, 1), vocabulary_.special_ids().source)
            : make_sequence_pack(std::span(&sequence, 1), keys.is_decoder_only() ? Side::target : Side::source);
    ArenaScope const scope(*arena_);
    LayerContext context{*execution_, *arena_, pack};
    Saved saved;
    Tensor const states = model_->has_encoder_output()
                              ? model_->encode(context)
                              : model_->parts().front().forward(context, {}, saved, {0, 0}).hidden;
    auto const width = static_cast<std::size_t>(states.dim(1));
    std::vector<double> const values = to_doubles(states);
    std::vector<float>& mean = means.emplace_back(width);
    for (std::size_t column = 0; column < width; ++column) {
      double sum = 0;
      for (std::size_t at = column; at < values.size(); at += width) {
        sum += values[at];
      }
      mean[column] = static_cast<float>(sum * static_cast<double>(width) / static_cast<double>(values.size()));
    }
  }
  return means;
}

std::vector<float> TrainedModel::logits(Pack const& pack) {
  ArenaScope const scope(*arena_);
  LayerContext context{*execution_, *arena_, pack};
  Tensor const logits = model_->logits(context);
  std::vector<float> values;
  for (double const value : to_doubles(logits)) {
    values.push_back(static_cast<float>(value));
  }
  return values;
}

}  // namespace heddle
