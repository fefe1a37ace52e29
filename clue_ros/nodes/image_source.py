"""A camera made of files.

Publishes a picture, a folder, a video or a webcam as a camera driver would.

Topics: image (sensor-data QoS), camera_info, image/compressed when asked for, and depth where there
is a depth picture. `source` and `depth` may be set while it runs.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Mapping
from typing import Any

import cv2
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from clue_ros.errors import BadImageError
from clue_ros.nodes import camera_info
from clue_ros.nodes.convert import Rgb, fill_image
from clue_ros.nodes.declare import declare, guard
from clue_ros.nodes.parameters import IMAGE_SOURCE, Value
from clue_ros.nodes.pictures import Pictures, load_depth, open_source
from clue_ros.nodes.process import run_node


class ImageSource(Node):
    """See the module's first lines.

    Raises (on construction): BadImageError, BadCalibrationError, BadParameterError.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("image_source", **kwargs)
        declare(self, IMAGE_SOURCE)
        self._calibration: CameraInfo | None = None
        if self._value("camera_info"):
            self._calibration = camera_info.from_file(self._value("camera_info"))
        self._pictures: Pictures = open_source(self._value("source"), self._value("loop"))
        self._depth = self._load_depth(self._value("depth"))
        self._shown: Rgb | None = None  # the picture that self._message holds
        self._message = Image()
        self._ended = False
        guard(self, IMAGE_SOURCE, take=self._take)
        self._image = self.create_publisher(Image, "image", qos_profile_sensor_data)
        self._info = self.create_publisher(CameraInfo, "camera_info", qos_profile_sensor_data)
        self._depths = self.create_publisher(Image, "depth", qos_profile_sensor_data)
        self._compressed = None
        if self._value("compressed"):
            topic = self.resolve_topic_name("image") + "/compressed"
            self._compressed = self.create_publisher(
                CompressedImage, topic, qos_profile_sensor_data
            )
        self.create_timer(1.0 / self._value("rate"), self._tick)
        size = "" if self._value("source").isdecimal() else f" at {self._value('rate'):g} Hz"
        self.get_logger().info(
            f"publishing {self._value('source')} on {self._image.topic_name}{size}"
        )

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _take(self, changes: Mapping[str, Value]) -> str | None:
        """Open what is new before it is accepted: if any of it is bad nothing changes."""
        calibration, depth, pictures = self._calibration, self._depth, None
        try:
            if "camera_info" in changes:
                path = str(changes["camera_info"])
                calibration = camera_info.from_file(path) if path else None
            if "depth" in changes:
                depth = self._load_depth(str(changes["depth"]))
            if "source" in changes:  # last: nothing else can refuse what it has opened
                loop = bool(changes.get("loop", self._value("loop")))
                pictures = open_source(str(changes["source"]), loop)
        except (BadImageError, camera_info.BadCalibrationError) as error:
            return str(error)
        self._calibration, self._depth = calibration, depth
        if pictures is not None:
            self._pictures.close()
            self._pictures, self._ended = pictures, False
        return None

    @staticmethod
    def _load_depth(path: str) -> Image | None:
        return fill_image(Image(), load_depth(path), "16UC1") if path else None

    def _tick(self) -> None:
        if self._ended:
            return
        try:
            picture = self._pictures.next()
        except BadImageError as error:
            self.get_logger().warning(f"left out: {error}")
            return
        if picture is None:
            self._ended = True
            self.get_logger().info(f"{self._value('source')} has ended")
            return
        self._publish(picture)

    def _publish(self, picture: Rgb) -> None:
        if picture is not self._shown:
            self._message, self._shown = fill_image(Image(), picture, "rgb8"), picture
        header = self._message.header
        header.stamp = self.get_clock().now().to_msg()
        header.frame_id = self._value("frame_id")
        self._image.publish(self._message)
        info = self._camera_info(picture)
        info.header = header
        self._info.publish(info)
        if self._depth is not None:
            self._depth.header = header
            self._depths.publish(self._depth)
        if self._compressed is not None:
            quality = [cv2.IMWRITE_JPEG_QUALITY, self._value("jpeg_quality")]
            _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), quality)
            data = array.array("B", jpeg.tobytes())
            message = CompressedImage(header=header, format="rgb8; jpeg compressed bgr8", data=data)
            self._compressed.publish(message)

    def _camera_info(self, picture: Rgb) -> CameraInfo:
        height, width = picture.shape[:2]
        if self._calibration is None:
            return camera_info.from_fov(width, height, self._value("horizontal_fov"))
        if (self._calibration.width, self._calibration.height) != (width, height):
            self.get_logger().warning(
                f"the calibration is for {self._calibration.width}x{self._calibration.height} "
                f"pixels, the picture has {width}x{height}",
                once=True,
            )
        return self._calibration


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop; 2 when its source or a parameter cannot be used."""
    return run_node("image_source", lambda _executor: ImageSource(), args)


if __name__ == "__main__":
    sys.exit(main())
