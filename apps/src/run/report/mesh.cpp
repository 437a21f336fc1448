#include "mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <map>
#include <set>

#include "run/directory/json_text.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

constexpr std::size_t max_lines = 64;

/// The axes that a report names: a rank's places in the groups of its grids.
std::map<std::string, MeshAxes> shown_axes(MeshShape const& shape) {
  std::map<std::string, MeshAxes> shown{{"pipeline", {MeshAxis::pipeline}},
                                        {"data", {MeshAxis::data}},
                                        {"context", MeshShape::context_axes(Grid::decoder)},
                                        {"tensor", MeshShape::tensor_axes(Grid::decoder)}};
  if (shape.has_grids()) {
    shown["encoder_context"] = MeshShape::context_axes(Grid::encoder);
    shown["encoder_tensor"] = MeshShape::tensor_axes(Grid::encoder);
  }
  return shown;
}

json::object layout_of(Config const& config, Mesh const& mesh, std::size_t ranks) {
  json::object object{{"ranks", ranks}};
  for (auto const& [name, axes] : shown_axes(mesh.shape())) {
    object[name] = mesh.shape().size(axes);
  }
  ParallelConfig const& parallel = config.parallel;
  object["pipeline_schedule"] = name_of(parallel.pipeline_schedule);
  object["zero_bubble"] = parallel.zero_bubble;
  object["context_mode"] = name_of(parallel.context_mode);
  object["sequence_parallel"] = parallel.sequence_parallel;
  object["shard_optimizer"] = shards_optimizer(parallel);
  object["shard_parameters"] = parallel.shard_parameters;
  object["expert"] = parallel.expert;
  return object;
}

json::array to_json(IndexRange const& range) {
  return {range.begin, range.end};
}

json::array stages_of(Config const& config, ModelDescription const& model, VocabularySizes const& vocabulary) {
  PipelinePlan const plan = plan_pipeline(model, config.parallel, vocabulary.target);
  std::vector<double> const shares = cost_shares(plan, model, vocabulary.target);
  json::array stages;
  for (std::size_t stage = 0; stage < plan.parts.size(); ++stage) {
    json::array parts;
    json::array described;
    for (IndexRange const& layers : plan.parts[stage]) {
      json::object part;
      for (std::size_t stack = 0; stack < model.stacks.size(); ++stack) {
        part[model.stacks[stack].name] = to_json(model.range_in(stack, layers));
      }
      parts.emplace_back(std::move(part));
      described.emplace_back(describe(layers, model));
    }
    stages.push_back(json::object{{"parts", parts}, {"layers", described}, {"cost_share", shares[stage]}});
  }
  return stages;
}

json::object rank_of(ModelConfig const& model, Mesh const& place, VocabularySizes const& vocabulary,
                     std::string const& host) {
  json::object object{{"rank", place.rank()}, {"host", host}};
  MeshShape const& shape = place.shape();
  for (auto const& [name, axes] : shown_axes(shape)) {
    object[name] = shape.place(axes, place.rank());
  }
  auto const part = [&](std::int64_t count) {
    MeshAxes const tensor = MeshShape::tensor_axes(Grid::decoder);
    return to_json(share(count, shape.place(tensor, place.rank()), shape.size(tensor)));
  };
  object["heads"] = part(model.heads);
  object["d_ff"] = part(model.d_ff);
  object["source_vocabulary"] = part(vocabulary.source);
  object["target_vocabulary"] = part(vocabulary.target);
  int const context = shape.size(MeshShape::context_axes(Grid::decoder));
  int const chunk = shape.place(MeshShape::context_axes(Grid::decoder), place.rank());
  object["chunks"] = context > 1 ? json::value(json::array{chunk, 2 * context - 1 - chunk}) : json::value(nullptr);
  object["memory"] = json::object{{"planned", nullptr}, {"measured", nullptr}, {"resident", nullptr}};
  object["seconds"] = nullptr;
  object["communication"] = json::object();
  return object;
}

/// The line of one rank, or of several adjacent ones.
struct Line {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string host;
  std::int64_t stage = 0;
  std::vector<std::string> cells = {};  ///< cells of the columns after rank and host
};

/// "4-7", or one number.
std::string describe_range(std::int64_t begin, std::int64_t end) {
  return end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1);
}

/// The ranks' table: the columns of the axes that have more than one rank.
class RankTable {
 public:
  explicit RankTable(json::object const& layout, json::array const& ranks) : layout_(layout) {
    bool const one_vocabulary = std::ranges::all_of(
        ranks, [](json::value const& rank) { return rank.at("source_vocabulary") == rank.at("target_vocabulary"); });
    add(MeshAxis::pipeline, {"stage"}, {"pipeline"});
    add(MeshAxis::data, {"data"}, {"data"});
    add(MeshAxis::context, {"context", fmt::format("chunks of {}", 2 * size(MeshAxis::context))},
        {"context", "chunks"});
    add(MeshAxis::tensor, {"tensor", "heads", "d_ff", one_vocabulary ? "vocabulary" : "vocabulary (source)"},
        {"tensor", "heads", "d_ff", "source_vocabulary"});
    if (!one_vocabulary) {
      add(MeshAxis::tensor, {"(target)"}, {"target_vocabulary"});
    }
    for (json::value const& rank : ranks) {
      lines_.push_back(line_of(rank.as_object()));
    }
    for (bool const by_host : {true, false}) {
      if (lines_.size() > max_lines) {
        fold(by_host);
      }
    }
  }

  std::string text() const {
    std::vector<std::vector<std::string>> rows{heads_};
    for (Line const& line : lines_) {
      rows.push_back({describe_range(line.first, line.last + 1), line.host});
      rows.back().insert(rows.back().end(), line.cells.begin(), line.cells.end());
    }
    std::vector<std::size_t> widths(heads_.size());
    for (auto const& row : rows) {
      for (std::size_t column = 0; column < row.size(); ++column) {
        widths[column] = std::max(widths[column], fmt::formatted_size("{}", row[column]));
      }
    }
    std::string text;
    for (auto const& row : rows) {
      std::string line;
      for (std::size_t column = 0; column < row.size(); ++column) {
        line += fmt::format("{:<{}}  ", row[column], widths[column]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  std::int64_t size(MeshAxis axis) const { return layout_.at(axis.name()).to_number<std::int64_t>(); }

  void add(MeshAxis axis, std::vector<std::string> const& heads, std::vector<std::string> const& keys) {
    if (size(axis) > 1) {
      heads_.insert(heads_.end(), heads.begin(), heads.end());
      keys_.insert(keys_.end(), keys.begin(), keys.end());
    }
  }

  Line line_of(json::object const& rank) const {
    auto const number = rank.at("rank").to_number<std::int64_t>();
    Line line{number, number, std::string(text_of(rank, "host")), rank.at("pipeline").to_number<std::int64_t>()};
    for (std::string const& key : keys_) {
      json::value const& value = rank.at(key);
      if (!value.is_array()) {
        line.cells.push_back(json::serialize(value));
        continue;
      }
      auto const first = value.at(0).to_number<std::int64_t>();
      auto const second = value.at(1).to_number<std::int64_t>();
      // Heads and columns count from 1, as layers do; pieces of a vocabulary by their ids, which start at 0.
      std::int64_t const origin = key == "heads" || key == "d_ff" ? 1 : 0;
      line.cells.push_back(key == "chunks" ? fmt::format("{}, {}", first, second)
                                           : describe_range(first + origin, second + origin));
    }
    return line;
  }

  /// Joins adjacent ranks of one stage (with `by_host`, also of one host) in one line: differing columns show the first
  /// and the last.
  void fold(bool by_host) {
    std::vector<Line> folded;
    auto const join = [](std::string& cell, std::string const& last) {
      cell = cell == last ? cell : fmt::format("{} to {}", cell, last);
    };
    for (auto begin = lines_.begin(); begin != lines_.end();) {
      auto const end = std::find_if(begin, lines_.end(), [&](Line const& line) {
        return line.stage != begin->stage || (by_host && line.host != begin->host);
      });
      Line group = *begin;
      Line const& last = *(end - 1);
      group.last = last.last;
      join(group.host, last.host);
      for (std::size_t cell = 0; cell < group.cells.size(); ++cell) {
        join(group.cells[cell], last.cells[cell]);
      }
      folded.push_back(group);
      begin = end;
    }
    lines_ = std::move(folded);
  }

  json::object const& layout_;
  std::vector<std::string> heads_{"rank", "host"};
  std::vector<std::string> keys_;  ///< keys of the columns after these two
  std::vector<Line> lines_;
};

std::string describe_hosts(std::vector<std::string> const& hosts) {
  std::map<std::string, int> ranks;
  for (std::string const& host : hosts) {
    ++ranks[host];
  }
  auto const [min, max] =
      std::minmax_element(ranks.begin(), ranks.end(), [](auto const& a, auto const& b) { return a.second < b.second; });
  if (ranks.size() == 1) {
    return "one host";
  }
  return min->second == max->second
             ? fmt::format("{} hosts with {} each", ranks.size(), max->second)
             : fmt::format("{} hosts with {} to {} each", ranks.size(), min->second, max->second);
}

/// Tensor groups communicate in every sublayer, which is slow over a network between machines.
std::string warn_of_spread_groups(MeshShape const& shape, std::vector<std::string> const& hosts) {
  MeshAxes const axes{MeshAxis::tensor};
  int const size = shape.size(MeshAxis::tensor);
  std::size_t spread = 0;
  std::string example;
  for (int first = 0; first < shape.ranks(); ++first) {
    if (shape.place(axes, first) != 0) {
      continue;
    }
    std::set<std::string> names;
    for (int place = 0; place < size; ++place) {
      names.insert(hosts[static_cast<std::size_t>(shape.rank_at(axes, place, first))]);
    }
    if (names.size() > 1 && spread++ == 0) {
      example = fmt::format("that of rank {} is on {}", first, fmt::join(names, ", "));
    }
  }
  return spread == 0 ? ""
                     : fmt::format(
                           "warning: {} of {} tensor groups span several hosts ({}); they exchange the most, so let\n"
                           "  parallel.tensor divide the ranks of each host and number the ranks host by host\n",
                           spread, shape.ranks() / size, example);
}

}  // namespace

json::object mesh_to_json(Config const& config, ModelDescription const& model, Mesh const& mesh,
                          VocabularySizes const& vocabulary, std::vector<std::string> const& hosts) {
  json::array ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    Mesh const place(mesh.shape(), static_cast<int>(rank), static_cast<int>(hosts.size()));
    ranks.emplace_back(rank_of(config.model, place, vocabulary, hosts[rank]));
  }
  return {{"layout", layout_of(config, mesh, hosts.size())},
          {"stages", stages_of(config, model, vocabulary)},
          {"ranks", std::move(ranks)}};
}

MeshText describe_mesh(json::object const& mesh) {
  json::object const& layout = object_of(mesh, "layout");
  json::array const& ranks = mesh.at("ranks").as_array();
  json::array const& stages = mesh.at("stages").as_array();
  std::vector<std::string> hosts;
  for (json::value const& rank : ranks) {
    hosts.emplace_back(text_of(rank.as_object(), "host"));
  }
  if (hosts.size() == 1) {
    return {.line = fmt::format("one rank on {}\n", hosts.front()), .table = "", .warning = ""};
  }
  auto const size = [&](MeshAxis axis) { return layout.at(axis.name()).to_number<std::size_t>(); };
  MeshShape shape;
  for (MeshAxis const axis : known_axes) {
    shape = shape.with(axis, static_cast<int>(size(axis)));
  }
  std::string line =
      fmt::format("{} ranks on {}: {}", readable_count(hosts.size()), describe_hosts(hosts), shape.to_string());
  if (json::value const* const encoder = layout.if_contains("encoder_tensor")) {
    line += fmt::format(", encoder context {} × tensor {}", layout.at("encoder_context").to_number<int>(),
                        encoder->to_number<int>());
  }
  line += size(MeshAxis::pipeline) > 1 ? fmt::format(", schedule {}", text_of(layout, "pipeline_schedule")) : "";
  json::value const* const zero_bubble = layout.if_contains("zero_bubble");  // files of older runs have none
  line += size(MeshAxis::pipeline) > 1 && zero_bubble != nullptr && zero_bubble->as_bool() ? " zero-bubble" : "";
  json::value const* const encoder_context = layout.if_contains("encoder_context");
  bool const divides_sequences =
      size(MeshAxis::context) > 1 || (encoder_context != nullptr && encoder_context->to_number<int>() > 1);
  line += divides_sequences ? fmt::format(", context by {}", text_of(layout, "context_mode")) : "";
  bool const sharded = layout.at("shard_optimizer").as_bool() && size(MeshAxis::data) * size(MeshAxis::context) > 1;
  json::value const* const parameters = layout.if_contains("shard_parameters");  // nor have they this one
  bool const divided = parameters != nullptr && parameters->as_bool();
  line += !sharded ? "" : divided ? ", parameters sharded" : ", optimizer sharded";
  json::value const* const expert = layout.if_contains("expert");
  bool const has_experts = expert != nullptr && expert->to_number<int>() > 1;
  line += has_experts ? fmt::format(", experts over {} ranks\n", expert->to_number<int>()) : "\n";
  std::string table;
  for (std::size_t stage = 0; stage < stages.size() && stages.size() > 1; ++stage) {
    json::object const& own = stages[stage].as_object();
    std::vector<std::string_view> layers;
    for (json::value const& part : own.at("layers").as_array()) {
      layers.push_back(part.as_string());
    }
    table += fmt::format("stage {}: {} ({:.0f} % of the cost)\n", stage, fmt::join(layers, "; "),
                         100 * number_of(own, "cost_share"));
  }
  std::size_t const tensor = size(MeshAxis::tensor);
  if (layout.at("sequence_parallel").as_bool() && tensor > 1) {
    table += fmt::format(
        "sequence parallel: between sublayers tensor rank r holds rows r/{0} to (r+1)/{0} of the stream\n", tensor);
  }
  return {std::move(line), table + RankTable(layout, ranks).text(), warn_of_spread_groups(shape, hosts)};
}

}  // namespace heddle
