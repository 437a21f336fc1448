#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <map>

namespace heddle {

namespace {

/// A ParameterDescription as it travels: the name and the stages are elsewhere, one after another.
struct SentDescription {
  Shape shape;
  ShardSpec shard;
  IndexRange place;
  std::int64_t name_length = 0;
  std::int64_t stages = 0;
};

}  // namespace

WholeModel WholeModel::gather(ParallelState const& parallel, ParameterSet const& parameters) {
  std::vector<SentDescription> sent;
  std::string names;
  std::vector<int> stages;
  for (Parameter const& parameter : parameters.all()) {
    ParameterSpec const& spec = parameter.spec;
    std::size_t const before = stages.size();
    stages.insert(stages.end(), spec.stages.begin(), spec.stages.end());
    if (spec.stages.empty()) {
      stages.push_back(parallel.mesh.coordinate(MeshAxis::pipeline));
    }
    names += spec.name;
    sent.push_back({spec.shape, spec.shard, parameter.place, std::ssize(spec.name),
                    static_cast<std::int64_t>(stages.size() - before)});
  }
  auto const all_sent = gather_lists<SentDescription>(parallel.pipeline, sent);
  auto const all_names = gather_lists<char>(parallel.pipeline, names);
  auto const all_stages = gather_lists<int>(parallel.pipeline, stages);
  std::vector<std::vector<ParameterDescription>> gathered(all_sent.size());
  for (std::size_t stage = 0; stage < gathered.size(); ++stage) {
    auto name = all_names[stage].begin();
    auto holder = all_stages[stage].begin();
    for (SentDescription const& each : all_sent[stage]) {
      auto const name_end = name + each.name_length;
      auto const holder_end = holder + each.stages;
      gathered[stage].push_back({{name, name_end}, each.shape, each.shard, {holder, holder_end}, each.place});
      name = name_end;
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
