#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <map>

namespace heddle {

namespace {

/// Numbers and texts in order, for a message.
class Writer {
 public:
  void number(std::int64_t value) { words_.push_back(value); }
  void text(std::string const& value) {
    number(static_cast<std::int64_t>(value.size()));
    std::size_t const begin = words_.size();
    words_.resize(begin + (value.size() + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
    std::copy(value.begin(), value.end(), reinterpret_cast<char*>(words_.data() + begin));
  }
  std::vector<std::int64_t> const& words() const { return words_; }

 private:
  std::vector<std::int64_t> words_;
};

class Reader {
 public:
  explicit Reader(std::span<std::int64_t const> words) : words_(words) {}
  std::int64_t number() { return take(1).front(); }
  int integer() { return static_cast<int>(number()); }
  std::string text() {
    auto const size = static_cast<std::size_t>(number());
    auto const words = take((size + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
    return {reinterpret_cast<char const*>(words.data()), size};
  }

 private:
  std::span<std::int64_t const> take(std::size_t count) {
    auto const taken = words_.first(count);
    words_ = words_.subspan(count);
    return taken;
  }

  std::span<std::int64_t const> words_;
};

void write(Writer& writer, ParameterDescription const& description) {
  writer.text(description.name);
  writer.number(description.shape.rank());
  for (std::int64_t const extent : description.shape.to_vector()) {
    writer.number(extent);
  }
  writer.number(description.shard.axis);
  writer.number(static_cast<std::int64_t>(description.shard.mesh_axis));
  writer.number(static_cast<std::int64_t>(description.stages.size()));
  for (int const stage : description.stages) {
    writer.number(stage);
  }
  writer.number(description.place.begin);
  writer.number(description.place.end);
}

ParameterDescription read(Reader& reader) {
  ParameterDescription description;
  description.name = reader.text();
  std::vector<std::int64_t> extents(static_cast<std::size_t>(reader.number()));
  for (std::int64_t& extent : extents) {
    extent = reader.number();
  }
  description.shape = Shape(extents);
  description.shard.axis = reader.integer();
  description.shard.mesh_axis = static_cast<MeshAxis>(reader.number());
  description.stages.resize(static_cast<std::size_t>(reader.number()));
  for (int& stage : description.stages) {
    stage = reader.integer();
  }
  description.place.begin = reader.number();
  description.place.end = reader.number();
  return description;
}

std::vector<std::int64_t> described(ParallelState const& parallel, ParameterSet const& parameters) {
  Writer writer;
  writer.number(static_cast<std::int64_t>(parameters.all().size()));
  for (Parameter const& parameter : parameters.all()) {
    auto stages = parameter.spec.stages;
    if (stages.empty()) {
      stages.push_back(parallel.mesh.coordinate(MeshAxis::pipeline));
    }
    write(writer,
          {parameter.spec.name, parameter.spec.shape, parameter.spec.shard, std::move(stages), parameter.place});
  }
  return writer.words();
}

}  // namespace

WholeModel WholeModel::gather(ParallelState const& parallel, ParameterSet const& parameters) {
  std::vector<std::vector<ParameterDescription>> stages;
  for (auto const& words : gather_lists<std::int64_t>(parallel.pipeline, described(parallel, parameters))) {
    Reader reader(words);
    auto& stage = stages.emplace_back(static_cast<std::size_t>(reader.number()));
    for (ParameterDescription& description : stage) {
      description = read(reader);
    }
  }
  WholeModel model(std::move(stages));
  model.check();
  model.count();
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
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (ParameterDescription const& description : stages_[stage]) {
      if (description.stages.front() == static_cast<int>(stage)) {
        names.push_back(description.name);
      }
    }
  }
  return names;
}

void WholeModel::count() {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (ParameterDescription const& description : stages_[stage]) {
      if (description.stages.front() == static_cast<int>(stage)) {
        ++parameters_;
        elements_ += description.shape.size();
      }
    }
  }
}

}  // namespace heddle
