#include "run/directory/run_log.hpp"

#include <regex>

#include "test.hpp"

namespace heddle {
namespace {

TEST(RunLog, EachLineOfTheFileHasDateAndTime) {
  TemporaryDirectory const place;
  {
    RunDirectory const directory = RunDirectory::open(place.path() / "run");
    RunLog log(true, false, Verbosity::quiet);
    log.debug("before there is a file");
    log.open(directory);
    log.info("a table\nof two lines\n");
    log.progress("step 1/2", true);
    log.progress("step 2/2", false);
    log.debug("");
  }
  std::string const stamp = "20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}  ";
  std::string const text = read_whole(place.path() / "run" / "log.txt");
  EXPECT_TRUE(std::regex_match(text, std::regex(stamp + "before there is a file\n" + stamp + "a table\n" + stamp +
                                                "of two lines\n" + stamp + "step 1/2\n")))
      << text;
}

TEST(RunLog, TheHeaderOfARestartIsOnlyInTheFile) {
  for (bool const continued : {false, true}) {
    TemporaryDirectory const place;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    {
      RunDirectory const directory = RunDirectory::open(place.path() / "run");
      RunLog log(true, false, Verbosity::normal, continued);
      log.open(directory);
      log.header("[train] steps = 3");
      log.header_warning("too many ranks");
      log.header_warning("");
      log.info("resuming");
    }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), continued ? "resuming\n" : "[train] steps = 3\nresuming\n");
    EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), continued);
    std::string const text = read_whole(place.path() / "run" / "log.txt");
    EXPECT_NE(text.find("[train] steps = 3\n"), std::string::npos);
    EXPECT_NE(text.find("warning: too many ranks\n"), std::string::npos);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  }
}

}  // namespace
}  // namespace heddle
