#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/report/mesh_report.hpp>
#include <map>
#include <set>

namespace heddle {

namespace {

constexpr std::size_t max_lines = 64;

std::array<int, mesh_axes> sizes_of(Mesh const& mesh) {
  return {mesh.size(MeshAxis::pipeline), mesh.size(MeshAxis::data), mesh.size(MeshAxis::context),
          mesh.size(MeshAxis::tensor)};
}

std::string range(IndexRange const& share) {
  return share.count() == 1 ? fmt::format("{}", share.begin) : fmt::format("{}-{}", share.begin, share.end - 1);
}

/// The line of one rank, or of several adjacent ones.
struct Line {
  int first = 0;
  int last = 0;
  std::string host;
  int stage = 0;
  std::vector<std::string> cells;  ///< as `Table::heads`
};

/// The columns of every line besides the rank: those of the axes that have more than one rank.
struct Table {
  Config const& config;
  Mesh const& mesh;
  VocabularySizes const& vocabulary;

  bool has(MeshAxis axis) const { return mesh.size(axis) > 1; }

  std::vector<std::string> heads() const {
    std::vector<std::string> heads{"rank", "host"};
    auto const add = [&](MeshAxis axis, std::vector<std::string> const& names) {
      if (has(axis)) {
        heads.insert(heads.end(), names.begin(), names.end());
      }
    };
    add(MeshAxis::pipeline, {"stage"});
    add(MeshAxis::data, {"data"});
    add(MeshAxis::context, {"context", fmt::format("chunks of {}", 2 * mesh.size(MeshAxis::context))});
    add(MeshAxis::tensor, {"tensor", "heads", "d_ff", vocabulary.joint ? "vocabulary" : "vocabulary (source)"});
    if (has(MeshAxis::tensor) && !vocabulary.joint) {
      heads.emplace_back("(target)");
    }
    return heads;
  }

  Line line(int rank, std::string const& host) const {
    Mesh const place(sizes_of(mesh), rank,
                     mesh.size(MeshAxis::pipeline) * mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context) *
                         mesh.size(MeshAxis::tensor));
    Line line{rank, rank, host, place.coordinate(MeshAxis::pipeline), {}};
    auto const add = [&](MeshAxis axis, std::vector<std::string> const& cells) {
      if (has(axis)) {
        line.cells.push_back(fmt::format("{}", place.coordinate(axis)));
        line.cells.insert(line.cells.end(), cells.begin(), cells.end());
      }
    };
    int const context = place.coordinate(MeshAxis::context);
    auto const part = [&](std::int64_t count) {
      return range(share(count, place.coordinate(MeshAxis::tensor), place.size(MeshAxis::tensor)));
    };
    add(MeshAxis::pipeline, {});
    add(MeshAxis::data, {});
    add(MeshAxis::context, {fmt::format("{}, {}", context, 2 * mesh.size(MeshAxis::context) - 1 - context)});
    std::vector<std::string> parts{part(config.model.heads), part(config.model.d_ff), part(vocabulary.source)};
    if (!vocabulary.joint) {
      parts.push_back(part(vocabulary.target));
    }
    add(MeshAxis::tensor, parts);
    return line;
  }
};

/// Joins adjacent ranks of one stage (with `by_host`, also of one machine) in one line: differing columns show the
/// first and the last.
std::vector<Line> folded(std::vector<Line> const& lines, bool by_host) {
  std::vector<Line> result;
  auto const join = [](std::string& cell, std::string const& first, std::string const& last) {
    cell = first == last ? first : fmt::format("{} to {}", first, last);
  };
  for (auto begin = lines.begin(); begin != lines.end();) {
    auto const end = std::find_if(begin, lines.end(), [&](Line const& line) {
      return line.stage != begin->stage || (by_host && line.host != begin->host);
    });
    Line group = *begin;
    Line const& last = *(end - 1);
    group.last = last.last;
    join(group.host, begin->host, last.host);
    for (std::size_t cell = 0; cell < group.cells.size(); ++cell) {
      join(group.cells[cell], begin->cells[cell], last.cells[cell]);
    }
    result.push_back(group);
    begin = end;
  }
  return result;
}

std::string table(std::vector<std::string> const& heads, std::vector<Line> const& lines) {
  std::vector<std::vector<std::string>> rows{heads};
  for (Line const& line : lines) {
    rows.push_back({range({line.first, line.last + 1}), line.host});
    rows.back().insert(rows.back().end(), line.cells.begin(), line.cells.end());
  }
  std::vector<std::size_t> widths(heads.size());
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

std::string describe_stages(Config const& config, ModelDescription const& model, VocabularySizes const& vocabulary) {
  PipelinePlan const plan = plan_pipeline(model, config.parallel, vocabulary.target);
  std::vector<double> const shares = cost_shares(plan, model, vocabulary.target);
  std::string text;
  for (int stage = 0; stage < plan.stages() && plan.stages() > 1; ++stage) {
    auto const index = static_cast<std::size_t>(stage);
    std::vector<std::string> parts;
    for (IndexRange const& layers : plan.parts[index]) {
      parts.push_back(describe(layers, model));
    }
    text += fmt::format("stage {}: {} ({:.0f} % of the cost)\n", stage, fmt::join(parts, "; "), 100 * shares[index]);
  }
  return text;
}

std::string describe_modes(Config const& config, Mesh const& mesh) {
  ParallelConfig const& parallel = config.parallel;
  std::string text;
  if (mesh.size(MeshAxis::pipeline) > 1) {
    text += fmt::format(", schedule {}", name_of(parallel.pipeline_schedule));
  }
  if (mesh.size(MeshAxis::context) > 1) {
    text += fmt::format(", context by {}", name_of(parallel.context_mode));
  }
  if (parallel.shard_optimizer && mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context) > 1) {
    text += ", optimizer sharded";
  }
  return text;
}

/// Tensor groups communicate in every sublayer, which is slow over a network between machines.
std::string warn_of_spread_groups(Mesh const& mesh, std::vector<std::string> const& hosts) {
  auto const size = static_cast<std::size_t>(mesh.size(MeshAxis::tensor));
  std::size_t spread = 0;
  std::string example;
  for (std::size_t first = 0; first < hosts.size(); first += size) {
    auto const begin = hosts.begin() + static_cast<std::ptrdiff_t>(first);
    std::set<std::string> const names(begin, begin + static_cast<std::ptrdiff_t>(size));
    if (names.size() > 1 && spread++ == 0) {
      example = fmt::format("that of ranks {} to {} lies on {}", first, first + size - 1, fmt::join(names, ", "));
    }
  }
  return spread == 0 ? ""
                     : fmt::format(
                           "warning: {} of {} tensor groups span several hosts ({}); they exchange the most, so let\n"
                           "  parallel.tensor divide the ranks of each host and number the ranks host by host\n",
                           spread, hosts.size() / size, example);
}

}  // namespace

std::vector<std::string> gather_hosts(Communicator const& world) {
  return gather_texts(world, host_name());
}

std::string describe_mesh(Config const& config, ModelDescription const& model, Mesh const& mesh,
                          VocabularySizes const& vocabulary, std::vector<std::string> const& hosts) {
  if (hosts.size() == 1) {
    return fmt::format("one rank on {}\n", hosts.front());
  }
  Table const columns{config, mesh, vocabulary};
  std::vector<Line> lines;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    lines.push_back(columns.line(static_cast<int>(rank), hosts[rank]));
  }
  if (lines.size() > max_lines) {
    lines = folded(lines, true);
  }
  if (lines.size() > max_lines) {
    lines = folded(lines, false);
  }
  std::string text =
      fmt::format("{} ranks on {}: {}{}\n{}", readable_count(hosts.size()), describe_hosts(hosts), mesh.to_string(),
                  describe_modes(config, mesh), describe_stages(config, model, vocabulary));
  if (config.parallel.sequence_parallel && mesh.size(MeshAxis::tensor) > 1) {
    text +=
        fmt::format("sequence parallel: between sublayers tensor rank r holds rows r/{0} to (r+1)/{0} of the stream\n",
                    mesh.size(MeshAxis::tensor));
  }
  return text + table(columns.heads(), lines) + warn_of_spread_groups(mesh, hosts);
}

}  // namespace heddle
