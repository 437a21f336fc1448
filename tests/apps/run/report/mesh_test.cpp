#include "run/report/mesh.hpp"

#include <boost/json.hpp>
#include <heddle/core/model/layout.hpp>

#include "golden_model.hpp"
#include "test.hpp"

namespace heddle {
namespace {

constexpr VocabularySizes vocabulary{1000, 1000, true};

std::string mesh_text(MeshShape const& sizes, std::vector<std::string> const& hosts,
                      VocabularySizes const& sizes_of_vocabulary = vocabulary) {
  Config config;
  set_shape(config.parallel, sizes);
  config.parallel.sequence_parallel = true;
  Mesh const mesh(sizes, 0, static_cast<int>(hosts.size()));
  MeshText const text =
      describe_mesh(mesh_to_json(config, description_of(config.model), mesh, sizes_of_vocabulary, hosts));
  return text.line + text.table + text.warning;
}

TEST(MeshTextTest, OneRankIsOneLine) {
  EXPECT_EQ(mesh_text({1, 1, 1, 1}, {"loom"}), "one rank on loom\n");
}

TEST(MeshTextTest, SaysWhatEveryRankHolds) {
  std::string const text = mesh_text({2, 1, 2, 2}, {"a", "a", "a", "a", "b", "b", "b", "b"});
  EXPECT_EQ(
      text,
      "8 ranks on 2 hosts with 4 each: pipeline 2 × data 1 × context 2 × tensor 2, schedule 1f1b, context by ring\n"
      "stage 0: encoder layers 1 to 6, decoder layer 1 (52 % of the cost)\n"
      "stage 1: decoder layers 2 to 6 (48 % of the cost)\n"
      "sequence parallel: between sublayers tensor rank r holds rows r/2 to (r+1)/2 of the stream\n"
      "rank  host  stage  context  chunks of 4  tensor  heads  d_ff       vocabulary\n"
      "0     a     0      0        0, 3         0       1-4    1-1024     0-499\n"
      "1     a     0      0        0, 3         1       5-8    1025-2048  500-999\n"
      "2     a     0      1        1, 2         0       1-4    1-1024     0-499\n"
      "3     a     0      1        1, 2         1       5-8    1025-2048  500-999\n"
      "4     b     1      0        0, 3         0       1-4    1-1024     0-499\n"
      "5     b     1      0        0, 3         1       5-8    1025-2048  500-999\n"
      "6     b     1      1        1, 2         0       1-4    1-1024     0-499\n"
      "7     b     1      1        1, 2         1       5-8    1025-2048  500-999\n");
}

TEST(MeshTextTest, WarnsOfTensorGroupsThatSpanHosts) {
  expect_lacks(mesh_text({1, 2, 1, 2}, {"a", "a", "b", "b"}), "warning");
  std::string const text = mesh_text({1, 2, 1, 2}, {"a", "a", "a", "b"}, {1000, 700, false});
  expect_contains(text, {"warning: 1 of 2 tensor groups span several hosts (that of rank 2 is on a, b)",
                         "2 hosts with 1 to 3 each", "500-999              350-699"});
}

TEST(MeshTextTest, FoldsManyRanks) {
  std::vector<std::string> hosts;
  for (int host = 0; host < 128; ++host) {
    hosts.insert(hosts.end(), 4, "node" + std::to_string(host));
  }
  std::vector<std::string> const few(hosts.begin(), hosts.begin() + 128);
  std::string const by_host = mesh_text({2, 16, 1, 4}, few);
  expect_contains(by_host, "4-7      node1   0      1     0 to 3  1-2 to 7-8");
  std::string const by_stage = mesh_text({2, 64, 1, 4}, hosts);
  expect_contains(by_stage, "256-511  node64 to node127  1      0 to 63  0 to 3  1-2 to 7-8");
}

}  // namespace
}  // namespace heddle
