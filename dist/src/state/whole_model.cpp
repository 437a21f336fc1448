#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <iterator>
#include <map>
#include <sstream>

namespace heddle {

namespace {

/// A ParameterDescription as it travels, without its texts: in lines after one another its name, for each axis in
/// Placement::shards the mesh axes, and the keys of its state, each followed by its shape if it is of the whole matrix.
struct SentDescription {
  Shape shape;
  IndexRange place;
  IndexRange section;
  std::int64_t section_parts = 0;
  std::int64_t trained = 0;
  std::int64_t rounded = 0;
  std::int64_t matrix = 0;
  std::int64_t shards = 0;
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
  for (Parameter const* const parameter : in_order(parameters)) {
    Placement const& placement = parameter->placement();
    std::size_t const before = stages.size();
    stages.insert(stages.end(), placement.stages.begin(), placement.stages.end());
    if (placement.stages.empty()) {
      stages.push_back(parallel.mesh.coordinate(MeshAxis::pipeline));
    }
    texts += parameter->spec.name + "\n";
    for (MeshAxes const& axes : placement.shards) {
      for (MeshAxis const axis : axes) {
        texts += fmt::format("{} ", axis.name());
      }
      texts += "\n";
    }
    for (std::string const& key : parameter->state) {
      auto const whole = parameter->whole_state.find(key);
      texts += fmt::format("{}\n", key);
      texts +=
          whole == parameter->whole_state.end() ? "\n" : fmt::format("{}\n", fmt::join(whole->second.to_vector(), " "));
    }
    DividedSection const* const section = parameters.section_of(parameter->place.begin);
    sent.push_back({placement.global_shape, parameter->place, section != nullptr ? section->range : IndexRange(),
                    section != nullptr ? section->parts : 0, parameter->place.end <= parameters.gradient_size() ? 1 : 0,
                    parameter->spec.rounded ? 1 : 0, parameter->spec.matrix ? 1 : 0, std::ssize(placement.shards),
                    std::ssize(parameter->state), static_cast<std::int64_t>(stages.size() - before)});
  }
  auto const all_sent = gather_lists<SentDescription>(parallel.pipeline, sent);
  auto const all_texts = gather_texts(parallel.pipeline, texts);
  auto const all_stages = gather_lists<int>(parallel.pipeline, stages);
  std::vector<std::vector<ParameterDescription>> gathered(all_sent.size());
  for (std::size_t stage = 0; stage < gathered.size(); ++stage) {
    std::istringstream lines(all_texts[stage]);
    auto const next_line = [&] {
      std::string line;
      std::getline(lines, line);
      return line;
    };
    auto holder = all_stages[stage].begin();
    for (SentDescription const& each : all_sent[stage]) {
      ParameterDescription& described = gathered[stage].emplace_back(
          ParameterDescription{.name = next_line(),
                               .placement = {.global_shape = each.shape, .stages = {holder, holder + each.stages}},
                               .place = each.place,
                               .section = each.section,
                               .section_parts = static_cast<int>(each.section_parts),
                               .trained = each.trained != 0,
                               .rounded = each.rounded != 0,
                               .matrix = each.matrix != 0});
      holder += each.stages;
      for (std::int64_t axis = 0; axis < each.shards; ++axis) {
        MeshAxes& axes = described.placement.shards.emplace_back();
        std::istringstream names(next_line());
        for (std::string name; names >> name;) {
          axes.emplace_back(name);
        }
      }
      for (std::int64_t key = 0; key < each.keys; ++key) {
        described.state.push_back(next_line());
        std::istringstream extents(next_line());
        if (std::vector<std::int64_t> const shape{std::istream_iterator<std::int64_t>(extents), {}}; !shape.empty()) {
          described.whole_state[described.state.back()] = Shape(shape);
        }
      }
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
      Placement const& first = holders.first->placement;
      Placement const& here = description.placement;
      if (!(here.global_shape == first.global_shape) || here.shards != first.shards) {
        throw Error("parameter {}: {} on stage {}, and {} on stage {}", description.name,
                    first.global_shape.to_string(), holders.stages.front(), here.global_shape.to_string(), stage);
      }
    }
  }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (ParameterDescription const& description : stages_[stage]) {
      auto const& holders = by_name.at(description.name).stages;
      if (auto const& said = description.placement.stages; said != holders) {
        throw Error("parameter {}: held by the stages {{{}}}, while stage {} says {{{}}}", description.name,
                    fmt::join(holders, ", "), stage, fmt::join(said, ", "));
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
  for_each_parameter(
      [&](ParameterDescription const& parameter) { elements += parameter.placement.global_shape.size(); });
  return elements;
}

}  // namespace heddle
