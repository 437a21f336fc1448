#include "run/report/run_files.hpp"

#include "test.hpp"

namespace heddle {
namespace {

constexpr char const* trace = R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"rank 1 on b"}},
{"ph":"X","cat":"step","name":"step 4","pid":0,"tid":0,"ts":0,"dur":100},
{"ph":"X","cat":"pass","name":"forward","pid":0,"tid":0,"ts":10,"dur":20,"args":{"micro_batch":0,"part":0}},
{"ph":"X","cat":"step","name":"step 5","pid":0,"tid":0,"ts":110,"dur":90},
{"ph":"X","cat":"pass","name":"forward","pid":0,"tid":0,"ts":110,"dur":30,"args":{"micro_batch":1,"part":0}},
{"ph":"X","cat":"layer","name":"encoder.layers.0.self_attention","pid":0,"tid":0,"ts":111,"dur":20},
{"ph":"X","cat":"communication","name":"tensor.all_reduce","pid":0,"tid":0,"ts":112,"dur":9,"args":{"group":"tensor","bytes":64}},
{"ph":"X","cat":"waiting","name":"tensor.wait","pid":0,"tid":0,"ts":113,"dur":5,"args":{"group":"tensor"}},
{"ph":"X","cat":"step","name":"step 5","pid":1,"tid":0,"ts":108,"dur":95},
{"ph":"X","cat":"pass","name":"backward","pid":1,"tid":0,"ts":150,"dur":30,"args":{"micro_batch":1,"part":1}},
{"ph":"b","cat":"transfer","name":"pipeline.send","pid":0,"tid":1,"ts":140,"id":1}, 7, null]})";

TEST(Schedule, IsTheLastStepOfEveryRank) {
  auto const schedule = schedule_to_json(boost::json::parse(trace).get_object());
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(schedule->at("step").as_string(), "step 5");
  EXPECT_EQ(schedule->at("duration").as_double(), 203 - 108);
  auto const& lanes = schedule->at("lanes").get_array();
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[1].at("name").as_string(), "rank 1 on b");
  EXPECT_EQ(lanes[0].at("events"),
            boost::json::parse(R"([{"kind":"pass","name":"forward","begin":2E0,"duration":3E1,"micro_batch":1,"part":0},
              {"kind":"communication","name":"tensor.all_reduce","begin":4E0,"duration":9E0,"group":"tensor","bytes":64}])"));
  EXPECT_FALSE(schedule_to_json({}).has_value());
  EXPECT_FALSE(schedule_to_json({{"traceEvents", boost::json::array{1, "x"}}}).has_value());
}

TEST(ReadRunFile, SaysWhyThereIsNothing) {
  TemporaryDirectory const directory;
  auto const path = directory.path() / "report.json";
  std::vector<std::string> notes;
  EXPECT_FALSE(read_run_file(path, "train again", notes).has_value());
  std::ofstream(path) << "[1, 2]";
  EXPECT_FALSE(read_run_file(path, "train again", notes).has_value());
  std::ofstream(path) << R"({"version": 1})";
  EXPECT_TRUE(read_run_file(path, "train again", notes).has_value());
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[0].find("report.json: does not exist; train again"), std::string::npos);
  EXPECT_NE(notes[1].find("is not a JSON object"), std::string::npos);
}

}  // namespace
}  // namespace heddle
