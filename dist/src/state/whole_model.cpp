#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <map>
#include <sstream>

namespace heddle {

namespace {

/// A ParameterDescription as it travels: the texts and the stages are elsewhere, one after another. A parameter's texts
/// are its name and, of each tensor of its state, a digit for the shape and the key, each with a line break behind it.
struct SentDescription {
  Shape shape;
  ShardSpec shard;
  IndexRange place;
  std::int64_t trained = 0;
  std::int64_t rounded = 0;
  std::int64_t whole = 0;
  std::int64_t keys = 0;
  std::int64_t stages = 0;
};

/// The parameters with a gradient in the order of their places, then the others.
std::vector<Parameter const*> in_order(ParameterSet const& parameters) {
  std::vector<Parameter const*> all = parameters.trained();
  for (Parameter const& parameter : parameters.all()) {
    if (parameter.place.end > parameters.gradient_size()) {
      all.push_back(&parameter);
    }
  }
  return all;
}

}  // namespace

WholeModel WholeModel::gather(ParallelState const& parallel, ParameterSet const& parameters) {
  std::vector<SentDescription> sent;
  std::string texts;
  std::vector<int> stages;
  std::vector<PlacedParameter> const placed = placed_parameters(parameters);
  for (Parameter const* const parameter : in_order(parameters)) {
    ParameterSpec const& spec = parameter->spec;
    std::size_t const before = stages.size();
    stages.insert(stages.end(), spec.stages.begin(), spec.stages.end());
    if (spec.stages.empty()) {
      stages.push_back(parallel.mesh.coordinate(MeshAxis::pipeline));
    }
    texts += spec.name + "\n";
    for (StateTensor const& state : parameter->state) {
      texts += fmt::format("{}{}\n", static_cast<int>(state.shape), state.key);
    }
    bool const trained = sent.size() < placed.size();
    bool const whole = trained && placed[sent.size()].whole;
    sent.push_back({spec.shape, spec.shard, parameter->place, trained ? 1 : 0, spec.rounded ? 1 : 0, whole ? 1 : 0,
                    std::ssize(parameter->state), static_cast<std::int64_t>(stages.size() - before)});
  }
  auto const all_sent = gather_lists<SentDescription>(parallel.pipeline, sent);
  auto const all_texts = gather_lists<char>(parallel.pipeline, texts);
  auto const all_stages = gather_lists<int>(parallel.pipeline, stages);
  std::vector<std::vector<ParameterDescription>> gathered(all_sent.size());
  for (std::size_t stage = 0; stage < gathered.size(); ++stage) {
    std::istringstream lines(std::string(all_texts[stage].begin(), all_texts[stage].end()));
    auto holder = all_stages[stage].begin();
    for (SentDescription const& each : all_sent[stage]) {
      auto const holder_end = holder + each.stages;
      ParameterDescription& described =
          gathered[stage].emplace_back(ParameterDescription{.name = "",
                                                            .shape = each.shape,
                                                            .shard = each.shard,
                                                            .stages = {holder, holder_end},
                                                            .place = each.place,
                                                            .trained = each.trained != 0,
                                                            .rounded = each.rounded != 0,
                                                            .whole = each.whole != 0});
      std::getline(lines, described.name);
      for (std::int64_t number = 0; number < each.keys; ++number) {
        std::string line;
        std::getline(lines, line);
        described.state.emplace_back(line.substr(1), static_cast<StateShape>(line.front() - '0'));
      }
      holder = holder_end;
    }
  }
  WholeModel model(std::move(gathered));
  model.check();
  return model;
}

void WholeModel::check() const {
  struct Holders {
    ParameterDescription const* first;
    std::vector<int> stages;
  };
  std::map<std::string, Holders> by_name;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (ParameterDescription const& description : stages_[stage]) {
      Holders& holders = by_name.try_emplace(description.name, Holders{&description, {}}).first->second;
      holders.stages.push_back(static_cast<int>(stage));
      if (!(description.shape == holders.first->shape) || description.shard.axis != holders.first->shard.axis) {
        throw Error(fmt::format("parameter {}: {} on stage {}, and {} on stage {}", description.name,
                                holders.first->shape.to_string(), holders.stages.front(), description.shape.to_string(),
                                stage));
      }
    }
  }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (ParameterDescription const& description : stages_[stage]) {
      auto const& holders = by_name.at(description.name).stages;
      if (description.stages != holders) {
        throw Error(fmt::format("parameter {}: held by the stages {{{}}}, while stage {} says {{{}}}", description.name,
                                fmt::join(holders, ", "), stage, fmt::join(description.stages, ", ")));
      }
    }
  }
}

std::vector<std::string> WholeModel::names() const {
  std::vector<std::string> names;
  for_each_parameter([&](ParameterDescription const& parameter) { names.push_back(parameter.name); });
  return names;
}

std::int64_t WholeModel::elements() const {
  std::int64_t elements = 0;
  for_each_parameter([&](ParameterDescription const& parameter) { elements += parameter.shape.size(); });
  return elements;
}

}  // namespace heddle
